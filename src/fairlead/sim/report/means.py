"""Key figures of a comparison: means over seeds with standard deviations."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fairlead.sim.compare import Outcome


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """A figure of a result with its label, unit and precision."""

    field: str
    label: str
    scale: float = 1.0
    digits: int = 2

    def of(self, outcome: Outcome) -> float | None:
        """Return the figure of one run in the label's unit."""
        value = getattr(outcome.figures, self.field)
        return None if value is None else float(value) * self.scale

    def text(self, value: float | None) -> str:
        """Return a value in the label's unit, without the unit."""
        return "–" if value is None else f"{value:,.{self.digits}f}"


AVERAGE_JCT = KeyFigure("avg_jct_s", "avg JCT (h)", 1 / 3600)
FAIRNESS = KeyFigure("finish_time_fairness", "ρ")
UTILIZATION = KeyFigure("utilization", "utilization (%)", 100, 1)
KEY_FIGURES = (
    AVERAGE_JCT,
    KeyFigure("median_jct_s", "median (h)", 1 / 3600),
    KeyFigure("p99_jct_s", "p99 (h)", 1 / 3600, 1),
    KeyFigure("makespan_s", "makespan (h)", 1 / 3600, 1),
    UTILIZATION,
    FAIRNESS,
    KeyFigure("preemptions", "preemptions", 1, 0),
    KeyFigure("cost_usd", "cost (USD)", 1, 0),
)


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over seeds; the deviation is None with a single seed."""

    value: float | None
    deviation: float | None

    def text(self, quantity: KeyFigure) -> str:
        """Return the mean, with ± its standard deviation if there are several seeds."""
        text = quantity.text(self.value)
        return text if self.deviation is None else f"{text} ± {quantity.text(self.deviation)}"


@dataclass(frozen=True, slots=True)
class Row:
    """The key figures of a policy at one load."""

    policy: str
    means: tuple[Mean, ...]
    """one per key figure"""
    ratios: tuple[float | None, ...]
    """each mean divided by that of the first policy"""
    unfinished: int
    """unfinished jobs of all seeds"""
    jobs: int
    cpu_s: float
    """measured, so it differs between runs"""


def outcomes_by_policy(
    outcomes: Iterable[Outcome], load: float | None
) -> dict[str, list[Outcome]]:
    """Return policy → its outcomes at a load, by seed."""
    by_policy: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.run.load == load:
            by_policy.setdefault(outcome.run.policy, []).append(outcome)
    return by_policy


def mean(outcomes: Sequence[Outcome], quantity: KeyFigure) -> Mean:
    """Return the mean of a figure over the runs in which it is defined."""
    values = [value for o in outcomes if (value := quantity.of(o)) is not None]
    return Mean(
        statistics.fmean(values) if values else None,
        statistics.stdev(values) if len(values) > 1 else None,
    )


def key_rows(outcomes: Iterable[Outcome], load: float | None) -> list[Row]:
    """Return a row of key figures for each policy at a load."""
    rows: list[Row] = []
    for policy, runs in outcomes_by_policy(outcomes, load).items():
        means = tuple(mean(runs, quantity) for quantity in KEY_FIGURES)
        first = rows[0].means if rows else means
        rows.append(
            Row(
                policy,
                means,
                tuple(ratio(m.value, f.value) for m, f in zip(means, first, strict=True)),
                sum(o.figures.unfinished for o in runs),
                sum(len(o.jobs.id) for o in runs),
                math.fsum(o.figures.cpu_s for o in runs),
            )
        )
    return rows


def ratio(value: float | None, base: float | None) -> float | None:
    """Return value divided by base; None if undefined."""
    return value / base if value is not None and base else None


def load_text(load: float | None) -> str:
    """Return the text of a load."""
    if load is None:
        return "all jobs"
    return "1 job/h" if load == 1 else f"{load:g} jobs/h"
