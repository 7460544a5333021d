"""Runs of a search comparison: every strategy under every policy, with the same orders."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.files.parsing.fields import unknown_name_error
from fairlead.files.recorded_curves import RecordedCurves
from fairlead.mechanisms.base import FluidMechanism
from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError, UsageError
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.model.submission.search import Choices, Search, StrategyName
from fairlead.sim.driver import simulate
from fairlead.sim.parallel_runs import run_all
from fairlead.sim.scenario import Scenario
from fairlead.tuning.comparison.reviewer import SearchReviewer
from fairlead.tuning.strategies import create_strategy

_REVIEWS_PER_REPORT = 6
_TRIAL = "trial"
"""workload of the trials unless the curves name one"""


@dataclass(frozen=True, slots=True, eq=False)
class SearchComparison:
    """Strategies and policies to compare on recorded learning curves."""

    curves: RecordedCurves
    target: float
    strategies: tuple[StrategyName, ...]
    policies: tuple[str, ...]
    cluster: Cluster
    speeds: SpeedTable
    """speeds of the trials, in reports per second"""
    seeds: int
    mechanism: str | None = None
    round_s: float | None = None
    restore_cost_s: float = 0.0

    def runs(self) -> "Iterator[SearchRun]":
        """Yield all runs; those of a strategy under a policy together."""
        for strategy in self.strategies:
            for policy in self.policies:
                for seed in range(self.seeds):
                    yield SearchRun(strategy, policy, seed)

    @property
    def cases(self) -> list[tuple[StrategyName, str]]:
        """Strategies and policies in the order of the runs; the first is the baseline."""
        return [(strategy, policy) for strategy in self.strategies for policy in self.policies]


@dataclass(frozen=True, slots=True)
class SearchRun:
    """One simulated search; the seed determines the order of the trials."""

    strategy: StrategyName
    policy: str
    seed: int

    def __str__(self) -> str:
        return f"{self.strategy} under {self.policy}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """Result of one simulated search."""

    run: SearchRun
    found_s: float
    """seconds until a trial reported the target; infinite if none did"""
    device_hours: float
    """of all trials, until then"""
    seen: int
    """trials with a report until then"""
    stopped: int
    """trials that the strategy stopped until then"""
    best: Sequence[tuple[float, float]]
    """seconds and value of every report that was better than all before"""


def trial_speeds(curves: RecordedCurves, cluster: Cluster, table: SpeedTable) -> SpeedTable:
    """Return reports per second on every accelerator of the cluster.

    Relative speeds are those of the curves' workload in the table.
    """
    relative = dict.fromkeys(cluster.accelerators, 1.0)
    if curves.workload is not None:
        if curves.workload not in table.workloads:
            raise unknown_name_error("workload", curves.workload, table.workloads)
        relative = {name: table.speed(curves.workload, [name]) for name in relative}
    fastest = max(relative.values())
    if not fastest:
        fix = "expected a workload that runs on this cluster"
        raise InputError(f"{curves.workload!r} has no speeds there", fix=fix, field="workload")
    return SpeedTable(
        {
            SpeedKey(_TRIAL, 1, name): speed / fastest / curves.report_s
            for name, speed in relative.items()
        }
    )


def check(comparison: SearchComparison) -> None:
    """Raise an error unless the target can be reached and the policies give whole devices."""
    if "pbt" in comparison.strategies:
        fix = "expected others: recorded curves do not tell how a clone continues"
        raise UsageError(f"--strategies: pbt: cannot be compared: {fix}")
    curves = comparison.curves
    best = curves.sign * float((curves.sign * curves.values).max())
    if curves.sign * best < curves.sign * comparison.target:
        fix = f"expected at most {best:g}" if curves.sign > 0 else f"expected at least {best:g}"
        raise UsageError(f"--target: {comparison.target:g} is reached by no trial: {fix}")
    for policy in comparison.policies:
        mechanism = create_mechanism(policy, comparison.mechanism, comparison.round_s)
        if isinstance(mechanism, FluidMechanism):
            raise UsageError(
                f"--policies: {policy}: gives fractions of devices: expected one that gives whole"
                " devices with --search"
            )


def compare_searches(
    comparison: SearchComparison, *, workers: int = 1, on_done: Callable[[], None] = lambda: None
) -> list[SearchOutcome]:
    """Return the outcome of every run, in the order of ``comparison.runs()``."""
    runs = list(comparison.runs())
    return run_all(run_search, comparison, runs, workers=workers, on_done=on_done)


def run_search(comparison: SearchComparison, run: SearchRun) -> SearchOutcome:
    """Simulate one search and return its outcome."""
    curves = comparison.curves
    order = np.random.default_rng(run.seed).permutation(len(curves.values))
    reports = curves.values.shape[1]
    jobs = [
        Job(id=f"t{i}", workload=_TRIAL, total_steps=reports, multijob="search")
        for i in range(len(order))
    ]
    search = Search(
        name="search",
        space={"order": Choices((0,))},
        metric=curves.metric,
        direction=curves.direction,
        trials=len(order),
        strategy=run.strategy,
        target=comparison.target,
    )
    devices = len(comparison.cluster.node_of)
    slowest = min(speed for speed in comparison.speeds.steps_per_s.values() if speed)
    reviewer = SearchReviewer(
        curves.sign * curves.values[order],
        jobs,
        create_strategy(search, None),
        curves.sign * comparison.target,
        parallel=len(jobs) if run.strategy == "feedback" else devices,
        period_s=curves.report_s / _REVIEWS_PER_REPORT,
        # Restarts may cost half of the time, and one device must suffice.
        limit_s=4.0 * len(jobs) * reports / slowest,
    )
    record, _ = simulate(
        Scenario(
            cluster=comparison.cluster,
            speeds=comparison.speeds,
            jobs=jobs,
            mechanism=create_mechanism(run.policy, comparison.mechanism, comparison.round_s),
            restore_cost_s=comparison.restore_cost_s,
            reviewer=reviewer,
        )
    )
    return SearchOutcome(
        run,
        reviewer.found_at,
        float(record.device_s.sum()) / 3600.0,
        reviewer.seen,
        reviewer.stopped,
        [(at, curves.sign * value) for at, value in reviewer.best_at],
    )
