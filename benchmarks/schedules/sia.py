"""Two of Sia's workloads as gangs of fixed size and batch, on the cluster of its paper.

A job keeps the devices and the batch size of its row on every accelerator. Its steps are those
that Sia's validation run with this batch size took. A step lasts as long as in the profiles on the
fewest nodes, with gradient accumulation where the batch of a device does not fit, times the factor
by which Sia's simulator slows each application down.
"""

import csv
import math
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

from benchmarks.schedules.cases import SHARED, Case

from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable

_DATA = SHARED / "data/sia"
_WORKLOADS = {"sia philly": "philly/workload-1.csv", "sia saturn": "saturn/workload-1.csv"}
_CLUSTER = "t4=24/4,a100=16/8,rtx-2080-ti=24/8"
_TYPES = {"t4": ("aws", 4), "a100": ("dgx-ext", 8), "rtx-2080-ti": ("rtx", 8)}
"""accelerator → cluster of its profiles, devices of a node"""
_SLOWDOWN = {"cifar10": 1.8, "ncf": 1.5}
"""application → factor on the time of a step in Sia's simulator; 1.2 for the others"""


def sia_cases() -> list[Case]:
    """Return a workload made from Philly's log and one from that of Helios' cluster Saturn."""
    cases = []
    for name, file in _WORKLOADS.items():
        rows = _rows(f"workloads/{file}")
        jobs = tuple(_job(row) for row in sorted(rows, key=lambda row: float(row["time"])))
        speeds = SpeedTable({key: value for job in jobs for key, value in _speeds(job)}, "Sia")
        cases.append(Case(name, _CLUSTER, jobs, speeds))
    return cases


def _job(row: dict[str, str]) -> Job:
    app, batch = row["application"], row["batch_size"]
    steps = _rows(f"profiles/{app}/validation-{batch}.csv")[-1]["iteration"]
    return Job(
        id=row["name"],
        arrival_at=float(row["time"]),
        workload=f"{app} (batch size {batch})",
        gang=int(row["num_replicas"]),
        total_steps=float(steps),
    )


def _speeds(job: Job) -> Iterator[tuple[SpeedKey, float]]:
    """Yield the speeds of a job on the accelerators."""
    app, _, batch = job.workload.rstrip(")").partition(" (batch size ")
    for accelerator, (cluster, per_node) in _TYPES.items():
        full, rest = divmod(job.gang, per_node)
        shape = (str(rest) if rest else "") + str(per_node) * full
        step_s = _step_s(_profile(app, cluster)[shape], int(batch) / job.gang)
        speed = 1.0 / (step_s * _SLOWDOWN.get(app, 1.2))
        yield SpeedKey(job.workload, job.gang, accelerator), speed


def _step_s(profile: dict[float, tuple[float, float]], batch: float) -> float:
    """Return the seconds of a step with this batch on every device.

    ``profile`` is batch of a pass → seconds of the pass and of its synchronisation, linear in
    between. A larger batch takes several passes, of which only the last is synchronised.
    """
    passes = math.ceil(batch / max(profile) - 1e-8)
    size = max(batch / passes, min(profile))
    low, high = next(
        ((a, b) for a, b in pairwise(sorted(profile)) if a <= size <= b), (size, size)
    )
    part = (size - low) / (high - low) if high > low else 0.0
    pass_s, sync_s = (
        (1 - part) * at_low + part * at_high
        for at_low, at_high in zip(profile[low], profile[high], strict=True)
    )
    return pass_s + (passes - 1) * (pass_s - sync_s)


@cache
def _profile(app: str, cluster: str) -> dict[str, dict[float, tuple[float, float]]]:
    """Return devices on each node → batch of a pass → seconds of the pass, synchronisation."""
    profile: dict[str, dict[float, tuple[float, float]]] = {}
    for row in _rows(f"profiles/{app}/placements-{cluster}.csv"):
        times = float(row["step_time"]), float(row["sync_time"])
        profile.setdefault(row["placement"], {})[float(row["local_bsz"])] = times
    return profile


@cache
def _rows(path: str) -> list[dict[str, str]]:
    with (_DATA / path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
