"""``fairlead compare --search``."""

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from fairlead.model.errors import UsageError

if TYPE_CHECKING:
    from fairlead.model.submission.search import StrategyName
    from fairlead.tuning.comparison.runs import SearchComparison, SearchOutcome

DEFAULT_STRATEGIES = "feedback,asha,none"
Progress = Callable[[int], AbstractContextManager[Callable[[], None]]]


def search_comparison(
    file: Path,
    strategies: str,
    target: float | None,
    *,
    policies: Sequence[str],
    cluster: str,
    speeds: str,
    **settings: Any,
) -> "SearchComparison":
    """Return the comparison after all checks that are possible before it runs."""
    from fairlead.files import read_cluster
    from fairlead.files.recorded_curves import read_curves
    from fairlead.files.speeds.prior import simulated_speeds
    from fairlead.tuning.comparison.runs import SearchComparison, check, trial_speeds

    curves, described = read_curves(file), read_cluster(cluster)
    table = simulated_speeds(speeds, described.accelerators)
    goal = curves.target if target is None else target
    if goal is None:
        raise UsageError(f"--target: missing: expected a value of {curves.metric}")
    if not math.isfinite(goal):
        raise UsageError(f"--target: not finite: {goal}: expected a value of {curves.metric}")
    comparison = SearchComparison(
        curves=curves,
        target=goal,
        strategies=_strategies(strategies),
        policies=tuple(policies),
        cluster=described,
        speeds=trial_speeds(curves, described, table),
        **settings,
    )
    check(comparison)
    return comparison


def _strategies(text: str) -> "tuple[StrategyName, ...]":
    from fairlead.model.submission.search import StrategyName

    known: tuple[StrategyName, ...] = get_args(StrategyName)
    named = [name.strip() for name in text.split(",")]
    unknown = [name for name in named if name not in known]
    if unknown:
        raise UsageError(f"--strategies: {unknown[0]!r}: expected some of {','.join(known)}")
    if len(set(named)) < len(named):
        raise UsageError(f"--strategies: duplicate: {text}: expected each strategy once")
    return tuple(name for chosen in named for name in known if name == chosen)


def run_and_report(
    comparison: "SearchComparison",
    out: Path,
    *,
    files: Mapping[str, object],
    workers: int,
    progress: Progress,
    as_json: bool,
) -> None:
    """Run all searches, write the report and the table, and print the figures."""
    from fairlead.files.parsing.text import write_text
    from fairlead.tuning.comparison.page import report
    from fairlead.tuning.comparison.runs import compare_searches
    from fairlead.tuning.comparison.tables import results_csv

    with progress(len(list(comparison.runs()))) as on_done:
        outcomes = compare_searches(comparison, workers=workers, on_done=on_done)
    options = [(o, v) for o, v in _options(comparison, files) if v is not None]
    words = [word for option, value in options for word in (option, _text(value))]
    described = {option.removeprefix("--"): _text(value) for option, value in options}
    described["policies"] = "; ".join(comparison.policies)
    command = shlex.join(["fairlead", "compare", *words])
    page = report(comparison, outcomes, described, command)
    paths = {"report": out / "report.html", "csv": out / "results.csv"}
    write_text(paths["report"], page)
    write_text(paths["csv"], results_csv(outcomes))
    _print(comparison, outcomes, {key: str(path) for key, path in paths.items()}, as_json=as_json)


def _options(
    comparison: "SearchComparison", files: Mapping[str, object]
) -> list[tuple[str, object]]:
    """Return the options that reproduce the results."""
    return [
        *(("--policies", policy) for policy in comparison.policies),
        *files.items(),
        ("--strategies", ",".join(comparison.strategies)),
        ("--target", comparison.target),
        ("--seeds", comparison.seeds),
        ("--mechanism", comparison.mechanism),
        ("--round", comparison.round_s),
        ("--restore-cost", comparison.restore_cost_s),
    ]


def _text(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _print(
    comparison: "SearchComparison",
    outcomes: "Sequence[SearchOutcome]",
    paths: Mapping[str, str],
    *,
    as_json: bool,
) -> None:
    from dataclasses import asdict

    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import results, table
    from fairlead.tuning.comparison.tables import case_rows, cells, run_dict

    rows = case_rows(comparison, outcomes)
    if as_json:
        print_json(
            {
                "metric": comparison.curves.metric,
                "target": comparison.target,
                "restore_cost_s": comparison.restore_cost_s,
                "cases": [asdict(row) for row in rows],
                "runs": [run_dict(outcome) for outcome in outcomes],
                **paths,
            }
        )
        return
    shown = [cells(row) for row in rows]
    for row in shown:
        del row["stopped"]
    title = (
        f"Minutes to {comparison.curves.metric} {comparison.target:g}, mean ± deviation of"
        f" {comparison.seeds} orders"
    )
    table(title, list(shown[0]), [list(row.values()) for row in shown])
    for path in paths.values():
        results.print(path, highlight=False, markup=False, soft_wrap=True)
