"""Comparison of policies on the same traces: one run per policy, seed and load, in parallel."""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fairlead.data import RESTORE_COST_S
from fairlead.mechanisms.base import FluidMechanism, HasRounds
from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.errors import UsageError
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.model.submission.skipped_job import SkippedJob
from fairlead.registry import available
from fairlead.sim.driver import simulate
from fairlead.sim.generate import Recipe, generate
from fairlead.sim.metrics import Result, finish_time_fairness, summarise
from fairlead.sim.occupancy import Timeline, TimelineRecorder
from fairlead.sim.parallel_runs import run_all
from fairlead.sim.physics.true_speeds import TrueSpeeds
from fairlead.sim.record import Record
from fairlead.sim.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation of a comparison; seed and load are None if the trace is read from a file."""

    policy: str
    seed: int | None = None
    load: float | None = None
    """arrivals per hour"""
    record_timeline: bool = False
    """whether to record its leases, for the figures over time"""

    def __str__(self) -> str:
        parts = [self.policy]
        if self.load is not None:
            parts.append(f"{self.load:g} jobs/h")
        if self.seed is not None:
            parts.append(f"seed {self.seed}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The policies to compare, on one trace or on one trace per seed and load."""

    policies: tuple[str, ...]
    cluster: Cluster
    speeds: SpeedTable
    jobs: tuple[Job, ...] = ()
    """jobs of the trace; empty if the recipe generates the traces"""
    recipe: Recipe | None = None
    seeds: tuple[int | None, ...] = (None,)
    loads: tuple[float | None, ...] = (None,)
    mechanism: str | None = None
    round_s: float | None = None
    restore_cost_s: float = 0.0
    window: tuple[int, int] | None = None
    skipped: tuple[SkippedJob, ...] = ()
    """jobs of the trace that were left out, since they can never run"""

    @property
    def chosen_load(self) -> float | None:
        """The middle load, which the figures over time show."""
        return self.loads[len(self.loads) // 2]

    def runs(self) -> Iterator[Run]:
        """Yield the runs, load by load, seed by seed, policy by policy."""
        chosen = (self.chosen_load, self.seeds[0])
        for load in self.loads:
            for seed in self.seeds:
                for policy in self.policies:
                    yield Run(policy, seed, load, record_timeline=(load, seed) == chosen)

    def trace(self, run: Run) -> tuple[Job, ...]:
        """Return a run's jobs: the same for every policy at the same seed and load."""
        if self.recipe is None:
            return self.jobs
        recipe = self.recipe if run.load is None else replace(self.recipe, rate=run.load)
        return generate(recipe, self.speeds, random.Random(run.seed), self.cluster)


@dataclass(frozen=True, slots=True, eq=False)
class JobColumns:
    """Results of the jobs in a run's window, as columns; NaN for jobs that never got there."""

    id: tuple[str, ...]
    tenant: tuple[str, ...]
    arrival_at: FloatArray
    started_at: FloatArray
    finished_at: FloatArray
    rho: FloatArray
    """finish-time fairness"""
    preemptions: IntArray
    migrations: IntArray

    @property
    def jct_s(self) -> FloatArray:
        """Completion times."""
        return self.finished_at - self.arrival_at


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Results of one run; ``figures`` lists no jobs, which are columns here."""

    run: Run
    figures: Result
    jobs: JobColumns
    timeline: Timeline | None = None


def split_policies(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the policies that texts list, in order; reject duplicates.

    A comma starts the next policy if a known name follows it or if the policy before it has no
    options; otherwise it separates options of the same policy.
    """
    names = available("policies").keys() | available("mechanisms").keys()
    policies: list[str] = []
    for text in texts:
        first = True
        for piece in filter(None, map(str.strip, text.split(","))):
            known = piece.partition(":")[0] in names
            if first or known or ":" not in policies[-1]:
                policies.append(piece)
            else:
                policies[-1] += f",{piece}"
            first = False
    check_policies(policies, "--policies")
    return tuple(policies)


def check_policies(policies: Sequence[str], field: str) -> None:
    """Raise UsageError if there are no policies to compare, or a policy is listed twice."""
    if not policies:
        raise UsageError(f"{field}: empty: expected a list such as max-min,fifo")
    twice = [policy for policy in dict.fromkeys(policies) if policies.count(policy) > 1]
    if twice:
        raise UsageError(f"{field}: duplicate: {twice[0]!r}: expected each policy once")


def check_mechanism(policies: Iterable[str], mechanism: str, cluster: Cluster) -> None:
    """Raise UsageError unless a mechanism realises the shares of all policies.

    Only shares tell, so each policy divides the cluster between two jobs that may be packed.
    """
    speeds = SpeedTable(
        {
            SpeedKey("any", 1, accelerator, partner=partner): 1.0
            for accelerator in cluster.accelerators
            for partner in (None, "any")
        }
    )
    jobs = tuple(Job(id=name, workload="any", total_steps=1.0) for name in ("a", "b"))
    for policy in policies:
        realised = create_mechanism(policy, mechanism)
        try:
            simulate(Scenario(cluster=cluster, speeds=speeds, jobs=jobs, mechanism=realised))
        except UsageError as error:
            problem = str(error).removeprefix("mechanism: ")
            raise UsageError(f"--mechanism: {policy}: {problem}") from None


def default_restore_cost_s(mechanisms: Iterable[object]) -> float:
    """Return the restore cost of comparisons for which the user sets no other.

    At most half of the shortest round, so that jobs that move every round make progress.
    """
    rounds = [each.round_s for each in mechanisms if isinstance(each, HasRounds)]
    return min([RESTORE_COST_S, *(round_s / 2 for round_s in rounds)])


def compare(
    comparison: Comparison, *, workers: int = 1, on_done: Callable[[], None] = lambda: None
) -> list[Outcome]:
    """Return the outcome of every run, in the order of ``comparison.runs()``.

    The result does not depend on the number of workers. The first failed run ends the comparison.
    """
    runs = list(comparison.runs())
    return run_all(run_one, comparison, runs, workers=workers, on_done=on_done)


def run_one(comparison: Comparison, run: Run) -> Outcome:
    """Simulate one run and return its outcome."""
    started, cpu = time.perf_counter(), time.process_time()
    scenario, recorder = _scenario(comparison, run)
    record, _ = simulate(scenario)
    solo = TrueSpeeds(scenario.cluster, scenario.speeds, scenario.jobs).solo_speeds()
    figures = summarise(
        record,
        scenario.cluster,
        solo,
        policy=run.policy,
        window=scenario.window,
        cpu_s=time.process_time() - cpu,
        wall_s=time.perf_counter() - started,
    )
    timeline = recorder.timeline(scenario.jobs, record.finished_at) if recorder else None
    jobs = _columns(record, scenario.cluster, solo, scenario.window)
    return Outcome(run, replace(figures, jobs=[], trades=[]), jobs, timeline)


def _scenario(comparison: Comparison, run: Run) -> tuple[Scenario, TimelineRecorder | None]:
    cluster, speeds = comparison.cluster, comparison.speeds
    options = run.policy, comparison.mechanism, comparison.round_s
    mechanism = create_mechanism(*options)
    recorder = None
    if run.record_timeline and not isinstance(mechanism, FluidMechanism):
        recorder = TimelineRecorder(cluster, speeds, mechanism)
    scenario = Scenario(
        cluster=cluster,
        speeds=speeds,
        jobs=comparison.trace(run),
        mechanism=mechanism,
        restore_cost_s=comparison.restore_cost_s,
        window=comparison.window,
        on_event=recorder,
    )
    return scenario, recorder


def _columns(
    record: Record, cluster: Cluster, solo: FloatArray, window: tuple[int, int] | None
) -> JobColumns:
    chosen = slice(*(window or (0, len(record.jobs))))
    arrival = np.array([job.arrival_at for job in record.jobs])
    rho = finish_time_fairness(record.jobs, arrival, record.finished_at, solo, cluster)
    listed = record.jobs[chosen]
    return JobColumns(
        tuple(job.id for job in listed),
        tuple(job.tenant for job in listed),
        arrival[chosen],
        record.started_at[chosen],
        record.finished_at[chosen],
        rho[chosen],
        record.preemptions[chosen],
        record.migrations[chosen],
    )
