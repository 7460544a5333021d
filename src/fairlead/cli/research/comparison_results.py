"""Results of ``fairlead compare``: files and figures on the terminal."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairlead.sim.compare import Comparison, Outcome
    from fairlead.sim.report.parameters import ComparisonOptions

FILES = {"report": "report.html", "csv": "results.csv", "jobs_csv": "jobs.csv"}
"""files in the folder of results; comparisons of searches write no jobs.csv"""


def write_results(
    out: Path,
    comparison: "Comparison",
    outcomes: "Sequence[Outcome]",
    options: "ComparisonOptions",
) -> dict[str, str]:
    """Write the report and the tables; return their paths."""
    from fairlead.files.parsing.text import write_text
    from fairlead.sim.report.page import report
    from fairlead.sim.report.tables import jobs_csv, results_csv

    written = {
        "report": report(comparison, outcomes, options),
        "csv": results_csv(outcomes),
        "jobs_csv": jobs_csv(outcomes),
    }
    for key, body in written.items():
        write_text(out / FILES[key], body)
    return {key: str(out / name) for key, name in FILES.items()}


def print_results(
    comparison: "Comparison",
    outcomes: "Sequence[Outcome]",
    paths: dict[str, str],
    *,
    as_json: bool,
) -> None:
    """Print the key figures of each load, or all figures as JSON, and the files' paths."""
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import results
    from fairlead.cli.shared.skipped_jobs import print_skipped

    if as_json:
        print_json(
            {
                "restore_cost_s": comparison.restore_cost_s,
                "skipped": [{"id": job.id, "reason": job.reason} for job in comparison.skipped],
                "runs": [_as_dict(outcome) for outcome in outcomes],
                **paths,
            }
        )
        return
    for load in comparison.loads:
        _show(comparison, outcomes, load)
    print_skipped(comparison.skipped)
    for path in paths.values():
        results.print(path, highlight=False, markup=False, soft_wrap=True)


def _as_dict(outcome: "Outcome") -> dict[str, Any]:
    figures = outcome.figures.as_dict()
    for absent in ("policy", "jobs", "trades", "skipped"):
        del figures[absent]
    run = outcome.run
    n_jobs = len(outcome.jobs.id)
    return {"policy": run.policy, "seed": run.seed, "load": run.load, "jobs": n_jobs, **figures}


def _show(comparison: "Comparison", outcomes: "Sequence[Outcome]", load: float | None) -> None:
    """Print the key figures at a load, each above its ratio to the first policy's."""
    from rich.text import Text

    from fairlead.cli.shared.output import table
    from fairlead.sim.report.means import KEY_FIGURES, key_rows, load_text
    from fairlead.sim.report.parameters import restore_cost_text

    rows = key_rows(outcomes, load)
    unfinished = any(row.unfinished for row in rows)
    n_seeds = len(comparison.seeds)
    title = load_text(load) + (f", mean ± deviation of {n_seeds} seeds" if n_seeds > 1 else "")
    title += f", {restore_cost_text(comparison.restore_cost_s)} lost per restart"
    heads = ["policy", *(quantity.label for quantity in KEY_FIGURES)]
    drawn = []
    for row in rows:
        cells: list[str | Text] = [row.policy]
        for quantity, mean, ratio in zip(KEY_FIGURES, row.means, row.ratios, strict=True):
            cell = Text(mean.text(quantity))
            if ratio is not None and row is not rows[0]:
                cell.append(f"\n{ratio:.2f}×", style="dim")
            cells.append(cell)
        if unfinished:
            style = "red" if row.unfinished else ""
            cells.append(Text(f"{row.unfinished} of {row.jobs}", style=style))
        drawn.append(cells)
    table(title, [*heads, *(["unfinished"] if unfinished else [])], drawn)
