"""``fairlead compare``."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.research.trace import GeneratorKind
from fairlead.cli.shared.options import (
    ClusterOption,
    Json,
    MechanismOption,
    RestoreCostOption,
    RoundOption,
    SpeedsOption,
    WindowOption,
)
from fairlead.cli.shared.threads import use_one_thread
from fairlead.data import DEFAULT_CLUSTER, DEFAULT_SPEEDS
from fairlead.model.errors import InputError, UsageError

if TYPE_CHECKING:
    from fairlead.sim.compare import Comparison, Outcome
    from fairlead.sim.generate import Recipe
    from fairlead.sim.report.parameters import ComparisonOptions, GeneratedTraces

_GENERATED: dict[str, Any] = {
    "--seeds": 3,
    "--loads": "2,3,4",
    "--jobs": 300,
    "--kind": GeneratorKind.CONTINUOUS_SINGLE,
    "--tenants": 3,
    "--duration-factor": 0.1,
}
"""options of generated traces with their defaults; `--trace` excludes them"""


def compare(
    *,
    policies: Annotated[
        list[str],
        typer.Option(
            help="Policies, separated by commas; the first is the baseline. A comma starts the"
            " next policy only if the name of a policy or mechanism follows, so that policies may"
            " have several options. To be explicit, repeat the option:"
            " --policies hierarchical:inner=fifo,agnostic --policies fifo"
        ),
    ],
    seeds: Annotated[
        int | None, typer.Option(help="Number of traces at each load.", min=1, show_default="3")
    ] = None,
    loads: Annotated[
        str | None,
        typer.Option(help="Arrivals per hour, separated by commas.", show_default="2,3,4"),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Number of jobs of each trace.", min=1, show_default="300")
    ] = None,
    kind: Annotated[
        GeneratorKind | None,
        typer.Option(
            help="static: all jobs at time 0; continuous: Poisson; multiple: with gangs.",
            show_default="continuous-single",
        ),
    ] = None,
    tenants: Annotated[
        int | None, typer.Option(help="Number of tenants.", min=1, show_default="3")
    ] = None,
    duration_factor: Annotated[
        float | None,
        typer.Option(
            help="Factor on all durations; 1 gives Gavel's, for a hundred devices.",
            show_default="0.1",
        ),
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option(help="Trace to compare on, instead of generated ones."),
    ] = None,
    cluster: ClusterOption = DEFAULT_CLUSTER,
    speeds: SpeedsOption = DEFAULT_SPEEDS,
    mechanism: MechanismOption = None,
    round_s: RoundOption = None,
    restore_cost: RestoreCostOption = 0.0,
    window: WindowOption = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Number of worker processes.", min=1, show_default="all cores"),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for report.html, results.csv and jobs.csv.")
    ] = Path("out/compare"),
    as_json: Json = False,
) -> None:
    """Run several policies on the same traces and report a comparison.

    Every policy gets the same trace at the same seed and load. Writes one self-contained HTML
    page and two tables: one row per run, one row per job.

    Example:  fairlead compare --policies max-min,max-min:agnostic,fifo --seeds 3 --loads 2,3,4
    """
    use_one_thread()
    from fairlead.sim.compare import compare as run_all
    from fairlead.sim.compare import split_policies
    from fairlead.sim.report.parameters import ComparisonOptions

    generator = {
        "--seeds": seeds,
        "--loads": loads,
        "--jobs": jobs,
        "--kind": kind,
        "--tenants": tenants,
        "--duration-factor": duration_factor,
    }
    if trace is not None:
        _refuse_generator_options(generator)
    options = ComparisonOptions(
        policies=split_policies(policies),
        traces=trace if trace is not None else _generated(generator),
        cluster=cluster,
        speeds=speeds,
        mechanism=mechanism,
        round_s=round_s,
        restore_cost_s=restore_cost,
        window=window,
    )
    comparison = _comparison(options)
    _make(out)
    with _progress(comparison) as on_done:
        outcomes = run_all(comparison, workers=workers or _cores(), on_done=on_done)
    paths = _write(out, comparison, outcomes, options)
    _print_results(comparison, outcomes, paths, as_json=as_json)


def _refuse_generator_options(options: Mapping[str, object]) -> None:
    for option, value in options.items():
        if value is not None:
            raise UsageError(f"{option}: excluded by --trace: it describes generated traces")


def _generated(options: Mapping[str, Any]) -> "GeneratedTraces":
    """Return the traces that the options describe, with defaults filled in."""
    from fairlead.sim.report.parameters import GeneratedTraces

    chosen = {
        option: _GENERATED[option] if value is None else value for option, value in options.items()
    }
    kind: GeneratorKind = chosen["--kind"]
    static = kind in (GeneratorKind.STATIC, GeneratorKind.STATIC_MULTIPLE)
    if static and options["--loads"] is not None:
        raise UsageError(f"--loads: excluded by --kind {kind}: all jobs arrive at time 0")
    return GeneratedTraces(
        kind=kind.value,
        jobs=chosen["--jobs"],
        tenants=chosen["--tenants"],
        duration_factor=chosen["--duration-factor"],
        seeds=chosen["--seeds"],
        loads=() if static else _loads(chosen["--loads"]),
    )


def _loads(text: str) -> tuple[float, ...]:
    from fairlead.files.parsing.fields import number

    try:
        loads = sorted(number(part) for part in text.split(","))
    except InputError as error:
        raise UsageError(f"--loads: {error.problem}: expected jobs per hour: 2,3,4") from None
    if loads[0] <= 0 or len(set(loads)) < len(loads):
        raise UsageError(f"--loads: {text}: expected different loads above 0: 2,3,4")
    return tuple(loads)


def _comparison(options: "ComparisonOptions") -> "Comparison":
    """Return the comparison after all checks that are possible before it runs."""
    from fairlead.files import check_trace, read_cluster, read_speeds, read_trace
    from fairlead.mechanisms.factory import create_mechanism
    from fairlead.model.capabilities import Capabilities, capabilities_of
    from fairlead.sim.compare import Comparison
    from fairlead.sim.runs import parse_window

    mechanisms = [
        create_mechanism(policy, options.mechanism, options.round_s) for policy in options.policies
    ]
    capabilities = [capabilities_of(mechanism) for mechanism in mechanisms]
    supported_by_all = Capabilities(
        mixed_gangs=all(each.mixed_gangs for each in capabilities),
        per_accelerator_gangs=all(each.per_accelerator_gangs for each in capabilities),
    )
    traces = options.traces
    jobs = read_trace(traces) if isinstance(traces, str) else None
    generated = None if isinstance(traces, str) else traces
    n_jobs = generated.jobs if generated else len(jobs or ())
    window = parse_window(options.window, n_jobs)
    comparison = Comparison(
        policies=options.policies,
        cluster=read_cluster(options.cluster),
        speeds=read_speeds(options.speeds),
        jobs=jobs.jobs if jobs else (),
        recipe=_recipe(generated, window) if generated else None,
        seeds=tuple(range(generated.seeds)) if generated else (None,),
        loads=generated.loads or (None,) if generated else (None,),
        mechanism=options.mechanism,
        round_s=options.round_s,
        restore_cost_s=options.restore_cost_s,
        window=window,
    )
    # One generated trace suffices for the check: all draw from the same workloads and gangs.
    first = comparison.trace(next(comparison.runs()))
    check_trace(jobs or first, comparison.speeds, comparison.cluster, supported_by_all)
    return comparison


def _recipe(traces: "GeneratedTraces", window: tuple[int, int] | None) -> "Recipe":
    from fairlead.sim.generate import Recipe

    try:
        return Recipe(
            kind=traces.kind,
            jobs=traces.jobs,
            tenants=traces.tenants,
            duration_factor=traces.duration_factor,
            window=window,
        )
    except InputError as error:
        option = (error.field or "").replace("_", "-")
        raise UsageError(f"--{option}: {error.problem}: {error.fix}") from None


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot be created ({error.strerror or error})",
            fix="expected a writable folder for --out",
            source=str(out),
        ) from None


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def _progress(comparison: "Comparison") -> "Iterator[Callable[[], None]]":
    """Show the number of completed runs on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from fairlead.cli.shared.output import messages

    if not messages.is_terminal:
        yield lambda: None
        return
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=messages, transient=True) as bar:
        task = bar.add_task("runs", total=len(list(comparison.runs())))
        yield lambda: bar.advance(task)


def _write(
    out: Path,
    comparison: "Comparison",
    outcomes: "Sequence[Outcome]",
    options: "ComparisonOptions",
) -> dict[str, str]:
    """Write the report and the tables; return their paths."""
    from fairlead.files.parsing.text import write_text
    from fairlead.sim.report.page import report
    from fairlead.sim.report.tables import jobs_csv, results_csv

    page = report(comparison, outcomes, options)
    written = {
        "report": ("report.html", page),
        "csv": ("results.csv", results_csv(outcomes)),
        "jobs_csv": ("jobs.csv", jobs_csv(outcomes)),
    }
    for name, body in written.values():
        write_text(out / name, body)
    return {key: str(out / name) for key, (name, _) in written.items()}


def _print_results(
    comparison: "Comparison",
    outcomes: "Sequence[Outcome]",
    paths: dict[str, str],
    *,
    as_json: bool,
) -> None:
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import results

    if as_json:
        print_json({"runs": [_as_dict(outcome) for outcome in outcomes], **paths})
        return
    for load in comparison.loads:
        _show(comparison, outcomes, load)
    for path in paths.values():
        results.print(path, highlight=False, markup=False, soft_wrap=True)


def _as_dict(outcome: "Outcome") -> dict[str, Any]:
    figures = outcome.figures.as_dict()
    for absent in ("policy", "jobs", "trades"):
        del figures[absent]
    run = outcome.run
    n_jobs = len(outcome.jobs.id)
    return {"policy": run.policy, "seed": run.seed, "load": run.load, "jobs": n_jobs, **figures}


def _show(comparison: "Comparison", outcomes: "Sequence[Outcome]", load: float | None) -> None:
    """Print the key figures at a load, each above its ratio to the first policy's."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from fairlead.cli.shared.output import results
    from fairlead.sim.report.means import KEY_FIGURES, key_rows, load_text

    rows = key_rows(outcomes, load)
    unfinished = any(row.unfinished for row in rows)
    n_seeds = len(comparison.seeds)
    title = load_text(load) + (f", mean ± deviation of {n_seeds} seeds" if n_seeds > 1 else "")
    drawn = Table(title=title, title_justify="left")
    drawn.add_column("policy", no_wrap=True)
    for quantity in KEY_FIGURES:
        drawn.add_column(quantity.label, justify="right", no_wrap=True)
    if unfinished:
        drawn.add_column("unfinished", justify="right", no_wrap=True)
    for row in rows:
        cells = [Text(row.policy)]
        for quantity, mean, ratio in zip(KEY_FIGURES, row.means, row.ratios, strict=True):
            cell = Text(mean.text(quantity))
            if ratio is not None and row is not rows[0]:
                cell.append(f"\n{ratio:.2f}×", style="dim")
            cells.append(cell)
        if unfinished:
            style = "red" if row.unfinished else ""
            cells.append(Text(f"{row.unfinished} of {row.jobs}", style=style))
        drawn.add_row(*cells)
    # A pipe has no width; a narrow terminal should wrap lines rather than lose figures.
    Console(width=max(results.width, 180)).print(drawn)
