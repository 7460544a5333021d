"""Believed speeds, as queries return them."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fairlead.model.job import Job
from fairlead.model.speeds.estimates import declared_speeds
from fairlead.model.speeds.key import SpeedKey, SpeedSource, plain_workload
from fairlead.model.speeds.measured import MeasuredSpeed
from fairlead.model.speeds.table import SpeedTable


class BelievedSpeed(NamedTuple):
    """The believed speed of a workload, and its origin."""

    key: SpeedKey
    steps_per_s: float
    source: SpeedSource
    measured_at: float | None
    """time at which the measured speed last changed; None unless it was measured"""
    doubt: float | None = None
    """standard deviation of the logarithm of an assumed speed; None: not stated"""
    planned_steps_per_s: float | None = None
    """speed that decisions use in its place; None: the same"""
    declared_steps_per_s: float | None = None
    """speed that the job's tenant has declared, on which an assumed one rests; None: none"""


def believed_speed(
    beliefs: SpeedTable,
    measured: Mapping[SpeedKey, MeasuredSpeed],
    key: SpeedKey,
    job: Job | None = None,
) -> BelievedSpeed:
    """Return the believed speed of a workload and gang on an accelerator, in its placement.

    ``job``: the job whose declared speeds count.
    """
    workload, gang, accelerator, placement, _ = key
    speed, planned = (
        table.speed(workload, (accelerator,) * gang, placement=placement)
        if job is None or placement == "spread"
        else table.job_speed(job, gang, accelerator)
        for table in (beliefs.medians, beliefs)
    )
    source = beliefs.source_of(workload, gang, accelerator, placement)
    assumed = source == "assumed" and job is not None and gang == job.gang_on(accelerator)
    return BelievedSpeed(
        key,
        speed,
        source,
        measured[key].at if key in measured else None,
        doubt_of(beliefs, key, job),
        None if planned == speed else planned,
        job.declared_speeds.get(accelerator) if assumed and job is not None else None,
    )


def doubt_of(beliefs: SpeedTable, key: SpeedKey, job: Job | None = None) -> float | None:
    """Return the standard deviation of the logarithm of an estimate; None: not stated.

    ``job``: the job whose declared speeds count.
    """
    workload, gang, accelerator, placement, _ = key
    if beliefs.source_of(workload, gang, accelerator, placement) != "assumed":
        return None
    taught = beliefs.placements.taught(key)
    if taught is not None:
        return taught.doubt
    apart = beliefs.placements.unlisted_ratio(key).doubt
    if beliefs.source_of(workload, gang, accelerator) != "assumed":
        return apart
    declared = () if job is None else declared_speeds(job)
    alone = beliefs.estimator.doubt(workload, gang, accelerator, declared)
    return alone if alone is None or not apart else math.hypot(alone, apart)


def with_spread(
    beliefs: SpeedTable,
    measured: Mapping[SpeedKey, MeasuredSpeed],
    consolidated: Iterable[BelievedSpeed],
) -> list[BelievedSpeed]:
    """Return believed speeds, each followed by that of the spread gang if it differs."""
    speeds: list[BelievedSpeed] = []
    for speed in consolidated:
        speeds.append(speed)
        key = speed.key._replace(placement="spread")
        if key.gang > 1:
            apart = believed_speed(beliefs, measured, key)
            if key in measured or apart.steps_per_s != speed.steps_per_s:
                speeds.append(apart)
    return speeds


def believed_pair_speed(beliefs: SpeedTable, key: SpeedKey) -> float | None:
    """Return the believed speed of a workload beside its partner; None if it is unknown."""
    if key in beliefs.measured_pairs:
        return beliefs.measured_pairs[key]
    workload, partner = plain_workload(key.workload), plain_workload(key.partner or "")
    return beliefs.speed(workload, (key.accelerator,) * key.gang, partner=partner) or None
