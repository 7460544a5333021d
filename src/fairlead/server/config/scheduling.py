"""Scheduling configuration of a server, built from its settings or loaded from its stored text."""

import json
from dataclasses import replace
from typing import Any

from fairlead.estimate.learned import stored_learner
from fairlead.files.parsing.text import SourceText
from fairlead.files.speeds.table import parse_speeds
from fairlead.live.scheduling_config import SchedulingConfig
from fairlead.mechanisms.base import HasRounds, Mechanism
from fairlead.mechanisms.factory import create_live_mechanism, plug_ins, stored_names
from fairlead.model.speeds.planned import Trials
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.model.tenants.weight_scope import WeightScope

_CONFIG_VERSION = 1
_START_S = 15.0
"""time in which most processes import their libraries and build their models"""
_MAX_LEAD_S = 30.0


def build_scheduling_config(
    policy: str,
    mechanism: str | None,
    round_s: float | None,
    speeds: SpeedTable,
    weight_scope: WeightScope = "cluster",
    *,
    guaranteed_refills: bool = True,
    charges_idle: bool = False,
    hands_over: bool = False,
) -> SchedulingConfig:
    """Return the scheduling configuration for these settings.

    With ``hands_over`` the engine starts processes of planned moves early. That decides when
    plans are requested, not what they are, and is no part of the stored text.
    """
    text: dict[str, Any] = {
        "form": _CONFIG_VERSION,
        "policy": policy,
        "mechanism": mechanism,
        "round_s": round_s,
        "assumed": speeds.assumed,
        "speeds": [[*key, speed] for key, speed in speeds.steps_per_s.items()],
    }
    # Configurations that an earlier version stored have none of these.
    if speeds.estimates:
        text["estimates"] = True
    if speeds.learner is not None:
        text["strengths"] = speeds.learner.document()
        if speeds.learner.process:
            text["process"] = True
    if speeds.quantile != 0.5:
        text["quantile"] = speeds.quantile
    if speeds.trials is not None:
        text["explores"] = True
    if weight_scope != "cluster":
        text["weight_scope"] = weight_scope
    if guaranteed_refills:
        text["guaranteed_refills"] = True
    if not charges_idle:
        text["charges_active"] = True
    made = create_live_mechanism(policy, mechanism, round_s)
    return SchedulingConfig(
        beliefs=speeds,
        mechanism=made,
        plan_lead_s=plan_lead_s(round_length_s(made), hands_over=hands_over),
        hands_over=hands_over,
        weight_scope=weight_scope,
        guaranteed_refills=guaranteed_refills,
        charges_idle=charges_idle,
        text=json.dumps(text, separators=(",", ":")),
        plug_ins=plug_ins(policy, mechanism),
        policy=policy,
        mechanism_name=mechanism,
        round_s=round_s,
    )


def changed_scheduling_config(
    before: SchedulingConfig,
    *,
    policy: str | None = None,
    mechanism: str | None = None,
    round_s: float | None = None,
    weight_scope: WeightScope | None = None,
    speeds: str | None = None,
) -> SchedulingConfig:
    """Return a configuration with these changes; what is None stays.

    A policy brings its own mechanism, unless one is named. ``speeds``: content of a speed table.
    """
    table = before.beliefs
    if speeds is not None:
        parsed = parse_speeds(SourceText("speeds", speeds))
        table = replace(
            parsed,
            assumed=table.assumed,
            learner=table.learner,
            quantile=table.quantile,
            trials=table.trials,
        )
    return build_scheduling_config(
        before.policy if policy is None else policy,
        before.mechanism_name if policy is None and mechanism is None else mechanism,
        before.round_s if round_s is None else round_s,
        table,
        before.weight_scope if weight_scope is None else weight_scope,
        hands_over=before.hands_over,
    )


def imported_scheduling_config(
    before: SchedulingConfig, speeds: str, *, replaces: bool
) -> tuple[int, SchedulingConfig]:
    """Return the entries of a table, and the configuration with these in its own table.

    ``speeds``: content of a speed table. It replaces the whole table if ``replaces`` is set.
    """
    new = parse_speeds(SourceText("speeds", speeds)).steps_per_s
    kept = {} if replaces else before.beliefs.steps_per_s
    return len(new), build_scheduling_config(
        before.policy,
        before.mechanism_name,
        before.round_s,
        replace(before.beliefs, steps_per_s={**kept, **new}),
        before.weight_scope,
        hands_over=before.hands_over,
    )


def load_scheduling_config(text: str, *, hands_over: bool = False) -> SchedulingConfig:
    """Return the scheduling configuration that was stored as this text."""
    document: dict[str, Any] = json.loads(text)
    speeds = SpeedTable(
        {SpeedKey(*key): speed for *key, speed in document["speeds"]},
        assumed=document["assumed"],
        estimates=document.get("estimates", False),
        learner=stored_learner(document),
        quantile=document.get("quantile", 0.5),
        trials=Trials() if document.get("explores") else None,
    )
    return build_scheduling_config(
        *stored_names(document["policy"], document["mechanism"]),
        document["round_s"],
        speeds,
        document.get("weight_scope", "cluster"),
        guaranteed_refills=document.get("guaranteed_refills", False),
        charges_idle=not document.get("charges_active", False),
        hands_over=hands_over,
    )


def round_length_s(mechanism: Mechanism[Any]) -> float:
    """Return the length of a mechanism's rounds."""
    return mechanism.round_s if isinstance(mechanism, HasRounds) else 60.0


def plan_lead_s(round_s: float, *, hands_over: bool = False) -> float:
    """Return the time before a round's end at which its successor's plan is requested.

    It is longer where the processes of planned moves start meanwhile (``hands_over``).
    """
    lead_s = 0.25 * round_s
    if hands_over:
        lead_s = max(lead_s, min(0.5 * round_s, _START_S))
    return min(lead_s, _MAX_LEAD_S)
