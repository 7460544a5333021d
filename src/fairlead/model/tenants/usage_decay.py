"""How past use moves entitlement: the setting."""

import math
from dataclasses import dataclass
from typing import Literal

from fairlead.model.errors import InputError


@dataclass(frozen=True, slots=True)
class History:
    """Use counts against a tenant and is forgotten by half every ``half_life_s``.

    ``measure`` says what counts as use: ``devices`` is the time for which devices were held;
    ``speed`` weighs it with what the job gains there, relative to its mean over the cluster, so
    that an hour on a device that a job hardly profits from costs its tenant little.
    """

    half_life_s: float = math.inf
    """infinite: use is never forgotten"""
    measure: Literal["devices", "speed"] = "devices"

    def __post_init__(self) -> None:
        if not self.half_life_s > 0:
            raise InputError(
                f"{self.half_life_s!r} is not allowed",
                fix="give seconds above 0",
                field="half_life_s",
            )
        if self.measure not in ("devices", "speed"):
            raise InputError(
                f"{self.measure!r} is not allowed", fix="give devices or speed", field="measure"
            )
