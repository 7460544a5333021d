"""Workloads drawn from a speed table for jobs with known gang and duration only."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from fairlead.files.parsing.fields import unknown_name_error
from fairlead.model.errors import InputError
from fairlead.model.job import DEFAULT_TENANT, Job
from fairlead.model.speeds.table import SpeedTable

PREFERRED_REFERENCE = "v100"


def reference_accelerator(speeds: SpeedTable, preferred: str | None = None) -> str:
    """Return the accelerator of durations: the preferred one, v100, or the fastest.

    The fastest has the highest speed relative to the best, averaged over all gangs measured
    alone, so that no workload with many small steps outweighs the others.
    """
    if preferred is not None:
        if preferred not in speeds.accelerators:
            raise unknown_name_error("accelerator", preferred, speeds.accelerators)
        return preferred
    if PREFERRED_REFERENCE in speeds.accelerators:
        return PREFERRED_REFERENCE
    total = dict.fromkeys(speeds.accelerators, 0.0)
    for workload, gangs in speeds.gangs.items():
        for gang in gangs:
            row = speeds.row(workload, gang, speeds.accelerators)
            if row.max() > 0:
                for accelerator, relative in zip(total, row / row.max(), strict=True):
                    total[accelerator] += float(relative)
    return max(total, key=lambda accelerator: total[accelerator])


@dataclass(frozen=True, slots=True)
class JobShape:
    """A job in a log: its arrival, number of devices and duration."""

    id: str
    arrival_s: float
    n_devices: int
    duration_s: float
    tenant: str = DEFAULT_TENANT
    deadline_s: float | None = None
    workload: str | None = None
    """workload in the log, used if the speed table has it"""
    utilization: float | None = None
    models: tuple[str, ...] = ()
    """GPU models in the log that the job may use; empty: any"""


class WorkloadSampler:
    """Draws workloads for shapes: the same seed and job id always give the same workload.

    The draw depends on nothing else, so a part of a log converts like the whole. A number of
    devices that no workload has as its gang becomes the largest smaller gang, and the duration
    grows in proportion, so that the job's device-hours stay the same.
    """

    def __init__(
        self,
        speeds: SpeedTable,
        *,
        seed: int = 0,
        reference: str | None = None,
        max_gang: int | None = None,
    ) -> None:
        self._speeds = speeds
        self._seed = seed
        self._max_gang = max_gang
        self.reference = reference_accelerator(speeds, reference)
        self.candidates = cache(self._candidates)
        self._measured = sorted({gang for gangs in speeds.gangs.values() for gang in gangs})

    def job(self, shape: JobShape) -> Job:
        """Return the job whose steps take the shape's duration on the reference accelerator."""
        gang = self.gang(shape.n_devices)
        duration_s = shape.duration_s * shape.n_devices / gang
        options = self.candidates(gang)
        drawn = options[int(self._uniform(shape.id) * len(options))]
        workload = shape.workload if shape.workload and shape.workload in options else drawn
        per_s = self._speeds.speed(workload, (self.reference,) * gang)
        return Job(
            id=shape.id,
            workload=workload,
            gang=gang,
            total_steps=float(max(1, round(duration_s * per_s))),
            arrival_at=shape.arrival_s,
            tenant=shape.tenant,
            deadline_s=shape.deadline_s,
            duration_s=duration_s,
            utilization=shape.utilization,
            accelerators=self._usable(workload, gang, shape.models),
        )

    def _usable(self, workload: str, gang: int, models: Sequence[str]) -> tuple[str, ...] | None:
        """Return the accelerators whose name starts a model's name; None if there are none."""
        usable = tuple(
            accelerator
            for accelerator in self._speeds.accelerators
            if any(model.lower().startswith(accelerator.lower()) for model in models)
            and self._speeds.speed(workload, (accelerator,) * gang) > 0
        )
        return usable or None

    def gang(self, n_devices: int) -> int:
        """Return the largest gang of any workload, up to ``n_devices``."""
        limit = min(n_devices, self._max_gang or n_devices)
        if not self._speeds.has_gang_speeds:
            return limit
        for gang in reversed(self._measured):
            if gang <= limit and self.candidates(gang):
                return gang
        raise InputError(
            f"no workload with a gang of {limit} or less on {self.reference}",
            fix="expected a table with smaller gangs",
            field="speeds",
        )

    def _candidates(self, gang: int) -> Sequence[str]:
        """Return the workloads that run with this gang on the reference accelerator."""
        workloads = []
        for workload in self._speeds.workloads:
            known = gang in self._speeds.gangs[workload] or not self._speeds.has_gang_speeds
            if known and self._speeds.speed(workload, (self.reference,) * gang) > 0:
                workloads.append(workload)
        return tuple(workloads)

    def _uniform(self, label: str) -> float:
        digest = hashlib.blake2b(f"{self._seed}:{label}".encode(), digest_size=6).digest()
        return int.from_bytes(digest, "big") / 2**48
