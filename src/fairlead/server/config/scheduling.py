"""The rules of a server: made from its settings, or from what an earlier start wrote of them."""

import json
from typing import Any

from fairlead.live.scheduling_config import Rules
from fairlead.mechanisms.base import Mechanism
from fairlead.mechanisms.factory import create_live_mechanism
from fairlead.model.speeds.table import SpeedKey, SpeedTable

_CONFIG_VERSION = 1


def build_scheduling_config(
    policy: str, mechanism: str | None, round_s: float | None, speeds: SpeedTable
) -> Rules:
    """Return the rules that settings mean."""
    text = {
        "form": _CONFIG_VERSION,
        "policy": policy,
        "mechanism": mechanism,
        "round_s": round_s,
        "assumed": speeds.assumed,
        "speeds": [[*key, speed] for key, speed in speeds.steps_per_s.items()],
    }
    made = create_live_mechanism(policy, mechanism, round_s)
    return Rules(
        beliefs=speeds,
        mechanism=made,
        plan_lead_s=plan_lead_s(round_length_s(made)),
        text=json.dumps(text, separators=(",", ":")),
    )


def load_scheduling_config(text: str) -> Rules:
    """Return the rules that had this text."""
    found: dict[str, Any] = json.loads(text)
    speeds = SpeedTable(
        {SpeedKey(*key): speed for *key, speed in found["speeds"]}, assumed=found["assumed"]
    )
    return build_scheduling_config(found["policy"], found["mechanism"], found["round_s"], speeds)


def round_length_s(mechanism: Mechanism[Any]) -> float:
    """Return how long a mechanism's rounds are."""
    return float(getattr(mechanism, "round_s", 60.0))


def plan_lead_s(round_s: float) -> float:
    """Return how long before a round ends the plan for the next one is asked for."""
    return min(0.25 * round_s, 30.0)
