"""The setting for the effect of past usage on entitlements."""

import math
from dataclasses import dataclass
from typing import Literal

from fairlead.model.errors import require


@dataclass(frozen=True, slots=True)
class History:
    """Past usage lowers a tenant's weight and decays by half every ``half_life_s``.

    ``measure`` is ``devices`` for device-seconds held, or ``speed`` for device-seconds weighted
    by the job's speed there relative to its mean over the cluster: an hour on a device that
    suits a job badly costs its tenant little.
    """

    half_life_s: float = math.inf
    """infinite: usage never decays"""
    measure: Literal["devices", "speed"] = "devices"

    def __post_init__(self) -> None:
        require(self.half_life_s > 0, "half_life_s", self.half_life_s, "seconds above 0")
        require(self.measure in ("devices", "speed"), "measure", self.measure, "devices or speed")
