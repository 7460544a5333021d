"""Tables of a search comparison: one row per run, and one row per strategy and policy."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fairlead.files.parsing.table import format_table
from fairlead.tuning.comparison.runs import SearchComparison, SearchOutcome

COLUMNS = ("strategy", "policy", "seed", "found_s", "device_hours", "seen", "stopped")


@dataclass(frozen=True, slots=True)
class CaseRow:
    """Figures of a strategy under a policy: means over the seeds in which the target was found."""

    strategy: str
    policy: str
    seeds: int
    reached: int
    """seeds in which a trial reached the target"""
    minutes: float | None
    """until then; None if no seed found it"""
    minutes_deviation: float | None
    ratio: float | None
    """minutes divided by those of the first row; None unless both found it with every seed"""
    device_hours: float | None
    seen: float | None
    """trials with a report"""
    stopped: float | None
    """trials that the strategy stopped"""


def case_rows(comparison: SearchComparison, outcomes: Sequence[SearchOutcome]) -> list[CaseRow]:
    """Return one row per strategy and policy; the first is the baseline of the ratios."""
    rows: list[CaseRow] = []
    for strategy, policy in comparison.cases:
        runs = [o for o in outcomes if (o.run.strategy, o.run.policy) == (strategy, policy)]
        hits = [o for o in runs if math.isfinite(o.found_s)]
        minutes = [o.found_s / 60.0 for o in hits]
        mean = statistics.fmean(minutes) if hits else None
        base = rows[0] if rows else None
        whole = len(hits) == len(runs) and (base is None or base.reached == base.seeds)
        first = mean if base is None else base.minutes
        rows.append(
            CaseRow(
                strategy,
                policy,
                len(runs),
                len(hits),
                mean,
                statistics.stdev(minutes) if len(hits) > 1 else None,
                mean / first if whole and mean and first else None,
                _mean([o.device_hours for o in hits]),
                _mean([float(o.seen) for o in hits]),
                _mean([float(o.stopped) for o in hits]),
            )
        )
    return rows


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def cells(row: CaseRow) -> dict[str, str]:
    """Return column → text of a row, for people."""
    minutes = _text(row.minutes, ",.0f")
    if row.minutes_deviation is not None:
        minutes += f" ± {row.minutes_deviation:,.0f}"
    return {
        "strategy": row.strategy,
        "policy": row.policy,
        "minutes": minutes,
        "ratio": _text(row.ratio, ".2f") + ("×" if row.ratio is not None else ""),
        "device hours": _text(row.device_hours, ",.1f"),
        "seen": _text(row.seen, ",.0f"),
        "stopped": _text(row.stopped, ",.0f"),
        "found": f"{row.reached} of {row.seeds}",
    }


def _text(value: float | None, form: str) -> str:
    return "–" if value is None else f"{value:{form}}"


def run_dict(outcome: SearchOutcome) -> dict[str, Any]:
    """Return one run for JSON and CSV; ``found_s`` is None if the target was not found."""
    seconds = outcome.found_s if math.isfinite(outcome.found_s) else None
    figures = {name: getattr(outcome, name) for name in COLUMNS[4:]}
    return {**asdict(outcome.run), "found_s": seconds, **figures}


def results_csv(outcomes: Sequence[SearchOutcome]) -> str:
    """Return one row per run."""
    rows = (
        ["" if value is None else f"{value}" for value in run_dict(outcome).values()]
        for outcome in outcomes
    )
    return format_table(COLUMNS, rows)
