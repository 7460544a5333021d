"""Believed speeds, as queries return them."""

from collections.abc import Mapping
from typing import NamedTuple

from fairlead.model.job import Job
from fairlead.model.speeds.key import SpeedKey, SpeedSource
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
    """Return the believed speed of a workload and gang on an accelerator.

    ``job``: the job whose declared speeds count.
    """
    workload, gang, accelerator = key[:3]
    speed, planned = (
        table.speed(workload, (accelerator,) * gang)
        if job is None
        else table.job_speed(job, gang, accelerator)
        for table in (beliefs.medians, beliefs)
    )
    source = beliefs.source_of(workload, gang, accelerator)
    assumed = source == "assumed" and job is not None and gang == job.gang_on(accelerator)
    return BelievedSpeed(
        key,
        speed,
        source,
        measured[key].at if key in measured else None,
        beliefs.doubt(workload, gang, accelerator, job),
        None if planned == speed else planned,
        job.declared_speeds.get(accelerator) if assumed and job is not None else None,
    )
