"""Warnings about simulations whose results may mislead, on stderr."""

from collections.abc import Iterable

from fairlead.mechanisms.base import HasRounds
from fairlead.model.cluster import Cluster
from fairlead.model.speeds.table import SpeedTable
from fairlead.sim.scenario import Scenario

_SHORT_ROUND_S, _MANY_ROUNDS = 1.0, 1_000_000
_LONG_WAIT = 1000
"""rounds of one restart whose simulation takes long"""


def warn_if_endless(restore_cost_s: float, mechanisms: Iterable[object]) -> None:
    """Print a warning if restarts leave no time for progress."""
    rounds = [each.round_s for each in mechanisms if isinstance(each, HasRounds)]
    if rounds and restore_cost_s >= min(rounds):
        count = restore_cost_s / min(rounds)
        wait = f" and others wait {count:,.0f} rounds for each restart, which may take hours"
        _warn(
            f"--restore-cost: {restore_cost_s:g} s is not below the round of {min(rounds):g} s:"
            f" jobs that move every round make no progress{wait if count > _LONG_WAIT else ''};"
            " expected less, or a longer --round"
        )


def warn_if_many_rounds(scenario: Scenario) -> None:
    """Print a warning if short rounds make a simulation long."""
    mechanism, accelerators = scenario.mechanism, scenario.whole_cluster.accelerators
    if not isinstance(mechanism, HasRounds) or mechanism.round_s >= _SHORT_ROUND_S:
        return
    fastest = [float(scenario.speeds.row_of(job, accelerators).max()) for job in scenario.jobs]
    ends = [
        job.arrival_at + job.total_steps / speed
        for job, speed in zip(scenario.jobs, fastest, strict=True)
        if speed > 0.0
    ]
    rounds = max(ends, default=0.0) / mechanism.round_s
    if rounds > _MANY_ROUNDS:
        _warn(
            f"--round: {mechanism.round_s:g} s makes over {_MANY_ROUNDS:,} rounds (about"
            f" {rounds:.1g}), which may take hours: expected seconds to minutes"
        )


def warn_if_assumed(speeds: SpeedTable, cluster: Cluster) -> None:
    """Print a warning if the results rest on speeds that the table lacks."""
    if lacking := speeds.lacking(cluster.accelerators):
        by_sheets = "" if speeds.learner is None else " and the data sheets"
        lower = {name.lower() for name in lacking}
        alike = ", ".join(name for name in speeds.accelerators if name.lower() in lower)
        fix = "add rows to the table for exact results"
        fix += f", or use its names: {alike}" if alike else ""
        _warn(
            f"--speeds: no speeds on {', '.join(lacking)}: assumed from those of the same"
            f" workloads on other accelerators{by_sheets}; {fix}"
        )


def _warn(text: str) -> None:
    from fairlead.cli.shared.output import messages

    messages.print(text, style="yellow", highlight=False, soft_wrap=True)
