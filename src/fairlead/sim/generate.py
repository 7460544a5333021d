"""Gavel's trace generators (its §7.1): Poisson arrivals of jobs drawn from a speeds table.

Every job takes the same number of random draws under every recipe. So two recipes that differ in
one setting give traces that differ in that setting only: another rate moves the arrivals of the
same jobs.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, get_args

from fairlead.files.bundled import DEFAULT_TRACE, bundled_text
from fairlead.files.traces.jobs import Trace
from fairlead.files.traces.trace import parse_trace
from fairlead.files.traces.workload_sampling import WorkloadSampler
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError, require
from fairlead.model.job import DEFAULT_TENANT, Job
from fairlead.model.speeds.table import SpeedTable
from fairlead.model.submission.bounds import (
    MAX_SECONDS,
    MAX_STEPS_LEFT,
    MAX_WEIGHT,
    MIN_SECONDS,
    MIN_WEIGHT,
)

GeneratorKind = Literal["static", "static-multiple", "continuous-single", "continuous-multiple"]
GENERATOR_KINDS: tuple[GeneratorKind, ...] = get_args(GeneratorKind)

# Gavel §7.1, with the values of its artifact: gang → share of jobs.
GANG_SHARES = {1: 0.70, 2: 0.10, 4: 0.15, 8: 0.05}
SHORT_SHARE = 0.8
SHORT_EXPONENTS = (1.5, 3.0)  # a short job lasts 10^x minutes on the reference accelerator
LONG_EXPONENTS = (3.0, 4.0)
HIGH_WEIGHT = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Settings of a generated trace; by default Gavel's continuous-single at a moderate rate."""

    kind: GeneratorKind = "continuous-single"
    jobs: int = 100
    rate: float = 4.0
    """arrivals per hour; ignored by static traces"""
    tenants: int = 1
    """number of tenants (tenant-0, tenant-1, …); each job's tenant is drawn uniformly"""
    high_share: float = 0.0
    """share of jobs with weight ``high_weight``; 0.2 in Gavel's multi-priority runs"""
    high_weight: float = HIGH_WEIGHT
    deadlines: tuple[float, ...] = ()
    """deadlines as multiples of the duration, drawn uniformly; Gavel uses 1.2, 2 and 10"""
    max_gang: int | None = None
    duration_factor: float = 1.0
    """factor on every duration; a trace with 0.1 simulates ten times faster"""
    window: tuple[int, int] | None = None
    """range A:B of the jobs to measure; arrivals continue after B to keep the load up"""
    extra_jobs: int | None = None
    """arrivals after the window; by default 110 % of its length"""
    reference: str | None = None
    """accelerator on which durations are defined; by default v100, else the fastest"""

    def __post_init__(self) -> None:
        require(
            self.kind in GENERATOR_KINDS, "kind", self.kind, f"one of {', '.join(GENERATOR_KINDS)}"
        )
        require(1 <= self.jobs <= 10**7, "jobs", self.jobs, "1 to 10 million")
        require(1e-9 <= self.rate < math.inf, "rate", self.rate, "jobs per hour, 1e-9 or more")
        require(1 <= self.tenants <= 10**6, "tenants", self.tenants, "1 to a million")
        require(0 <= self.high_share <= 1, "high_share", self.high_share, "0 to 1")
        require(
            MIN_WEIGHT <= self.high_weight <= MAX_WEIGHT,
            "high_weight",
            self.high_weight,
            f"{MIN_WEIGHT:g} to {MAX_WEIGHT:g}",
        )
        for deadline in self.deadlines:
            require(0 < deadline < math.inf, "deadlines", deadline, "factors above 0")
        require(
            self.max_gang is None or self.max_gang >= 1, "max_gang", self.max_gang, "1 or more"
        )
        factor = self.duration_factor
        require(0 < factor < math.inf, "duration_factor", factor, "above 0")
        if self.window is not None:
            first, last = self.window
            require(0 <= first < last <= 10**7, "window", f"{first}:{last}", "A:B with A < B")

    @property
    def total(self) -> int:
        """The number of jobs, including those that keep the cluster loaded after the window."""
        if self.window is None:
            return self.jobs
        first, last = self.window
        extra = self.extra_jobs
        return max(self.jobs, last + (math.ceil(1.1 * (last - first)) if extra is None else extra))


def generate(
    recipe: Recipe, speeds: SpeedTable, rng: random.Random, cluster: Cluster | None = None
) -> tuple[Job, ...]:
    """Return the jobs of a recipe by arrival; the same recipe and seed always give the same jobs.

    Gangs that no workload has or that fit no accelerator of the cluster are left out; the others
    keep their proportions.
    """
    draw = WorkloadSampler(speeds, reference=recipe.reference)
    gangs = _gangs(recipe, draw, speeds, cluster)
    bounds = list(accumulate(GANG_SHARES[gang] for gang, _ in gangs))
    mean_us = 0.0 if recipe.kind.startswith("static") else 3600e6 / recipe.rate
    jobs = []
    at_us = 0
    for index in range(recipe.total):
        # Only random() gives the same numbers in every version of Python.
        u = [rng.random() for _ in range(8)]
        if index > 0:
            # Summed in whole microseconds, so that rounding errors of log() do not add up.
            at_us += round(-math.log(1.0 - u[0]) * mean_us)
        chosen = min(bisect_right(bounds, u[1] * bounds[-1]), len(gangs) - 1)
        gang, workloads = gangs[chosen]
        workload = workloads[int(u[2] * len(workloads))]
        duration_s = _duration_s(u[3], u[4]) * recipe.duration_factor
        steps = duration_s * speeds.speed(workload, (draw.reference,) * gang)
        _check_length(recipe, duration_s, steps)
        jobs.append(
            Job(
                id=str(index),
                arrival_at=at_us / 1e6,
                workload=workload,
                gang=gang,
                total_steps=float(max(1, round(steps))),
                tenant=f"tenant-{int(u[5] * recipe.tenants)}"
                if recipe.tenants > 1
                else DEFAULT_TENANT,
                weight=recipe.high_weight if u[6] < recipe.high_share else 1.0,
                deadline_s=_deadline_s(recipe, u[7], duration_s),
            )
        )
    return tuple(jobs)


def _gangs(
    recipe: Recipe, draw: WorkloadSampler, speeds: SpeedTable, cluster: Cluster | None
) -> list[tuple[int, Sequence[str]]]:
    """Return the gangs to draw from, each with its candidate workloads."""
    counts = None if cluster is None else cluster.count_by_name()
    candidates: list[tuple[int, Sequence[str]]] = []
    for gang in GANG_SHARES:
        if gang > 1 and not recipe.kind.endswith("-multiple"):
            continue
        if recipe.max_gang is not None and gang > recipe.max_gang:
            continue
        workloads = [
            workload
            for workload in draw.candidates(gang)
            if counts is None
            or any(
                count >= gang and speeds.speed(workload, (accelerator,) * gang) > 0
                for accelerator, count in counts.items()
            )
        ]
        if workloads:
            candidates.append((gang, workloads))
    if not candidates:
        raise InputError(
            f"no workload of the speeds table runs on {draw.reference} and on the cluster",
            fix="expected a speeds table and a cluster that share accelerators",
            source=speeds.source or None,
        )
    return candidates


def _duration_s(u_range: float, u_exponent: float) -> float:
    low, high = SHORT_EXPONENTS if u_range < SHORT_SHARE else LONG_EXPONENTS
    return 60.0 * math.pow(10.0, low + (high - low) * u_exponent)


def _check_length(recipe: Recipe, duration_s: float, steps: float) -> None:
    """Raise InputError for a job that no trace may contain."""
    if duration_s > MAX_SECONDS or steps > MAX_STEPS_LEFT:
        raise InputError(
            f"too large: {recipe.duration_factor:g}: a job has {duration_s:g} s, {steps:g} steps",
            fix=f"expected a factor that gives up to {MAX_SECONDS:g} s, {MAX_STEPS_LEFT:g} steps",
            field="duration_factor",
        )


def _deadline_s(recipe: Recipe, u: float, duration_s: float) -> float | None:
    if not recipe.deadlines:
        return None
    factor = recipe.deadlines[int(u * len(recipe.deadlines))]
    deadline_s = round(factor * duration_s, 6)
    if not MIN_SECONDS <= deadline_s <= MAX_SECONDS:
        raise InputError(
            f"out of range: {factor:g}: a deadline of {deadline_s:g} s",
            fix=f"expected factors that give {MIN_SECONDS:g} to {MAX_SECONDS:g} s",
            field="deadlines",
        )
    return deadline_s


def default_trace() -> Trace:
    """Return the bundled trace: 120 jobs of three tenants that load the default cluster."""
    return parse_trace(bundled_text(DEFAULT_TRACE))
