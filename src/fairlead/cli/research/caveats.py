"""Warnings about simulations whose results may mislead, on stderr."""

from collections.abc import Iterable

from fairlead.mechanisms.base import HasRounds
from fairlead.model.cluster import Cluster
from fairlead.model.speeds.table import SpeedTable


def warn_if_endless(restore_cost_s: float, mechanisms: Iterable[object]) -> None:
    """Print a warning if a simulation may never end."""
    rounds = [each.round_s for each in mechanisms if isinstance(each, HasRounds)]
    if rounds and restore_cost_s >= min(rounds):
        _warn(
            f"--restore-cost: {restore_cost_s:g} s is not below the round of {min(rounds):g} s:"
            " jobs that move every round make no progress, so the simulation may never end"
        )


def warn_if_assumed(speeds: SpeedTable, cluster: Cluster) -> None:
    """Print a warning if the results rest on speeds that the table lacks."""
    if lacking := speeds.lacking(cluster.accelerators):
        by_sheets = "" if speeds.learner is None else " and the data sheets"
        _warn(
            f"--speeds: no speeds on {', '.join(lacking)}: assumed from those of the same"
            f" workloads on other accelerators{by_sheets}; add rows to the table for exact results"
        )


def _warn(text: str) -> None:
    from fairlead.cli.shared.output import messages

    messages.print(text, style="yellow", highlight=False, soft_wrap=True)
