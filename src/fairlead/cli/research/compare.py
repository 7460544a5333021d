"""``fairlead compare``."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.research.search_comparison import (
    DEFAULT_STRATEGIES,
    run_and_report,
    search_comparison,
)
from fairlead.cli.research.trace import GeneratorKind, recipe_options
from fairlead.cli.shared.options import (
    ClusterOption,
    Json,
    MechanismOption,
    RoundOption,
    SkipOption,
    SpeedsOption,
    WindowOption,
)
from fairlead.cli.shared.threads import use_one_thread
from fairlead.data import DEFAULT_CLUSTER, DEFAULT_SPEEDS, RESTORE_COST_S
from fairlead.model.errors import InputError, UsageError
from fairlead.model.submission.bounds import RESTORE_COST_RANGE

if TYPE_CHECKING:
    from fairlead.model.capabilities import Capabilities
    from fairlead.model.submission.skipped_job import SkippedJob
    from fairlead.sim.compare import Comparison
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
            " have several options. Repeated options keep policies apart, as in --policies"
            " hierarchical:inner=fifo,agnostic --policies fifo."
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
        typer.Option(help="Trace file to compare on, instead of generated traces."),
    ] = None,
    search: Annotated[
        Path | None,
        typer.Option(
            help="Learning curves in JSON: compare strategies of a hyperparameter search under"
            " the policies, instead of policies on traces."
        ),
    ] = None,
    strategies: Annotated[
        str | None,
        typer.Option(
            help="With --search: strategies, separated by commas.", show_default=DEFAULT_STRATEGIES
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            help="With --search: number that the metric must reach.", show_default="the curves'"
        ),
    ] = None,
    cluster: ClusterOption = DEFAULT_CLUSTER,
    speeds: SpeedsOption = DEFAULT_SPEEDS,
    mechanism: MechanismOption = None,
    round_s: RoundOption = None,
    restore_cost: Annotated[
        float | None,
        typer.Option(
            help="Seconds lost when a job restarts; 0 ignores restarts.",
            min=RESTORE_COST_RANGE.least,
            max=RESTORE_COST_RANGE.most,
            show_default=f"{RESTORE_COST_S:g}, at most half of the shortest round",
        ),
    ] = None,
    window: WindowOption = None,
    skip_impossible: SkipOption = False,
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

    Example:  fairlead compare --policies max-min,fifo --speeds mlperf-2025 --cluster h100=8,b200=8

    Example:  fairlead compare --search curves.json --target 0.98 --policies max-min,fifo
    """
    use_one_thread()
    from fairlead.cli.research.caveats import warn_if_assumed, warn_if_endless
    from fairlead.cli.research.comparison_results import FILES, print_results, write_results
    from fairlead.cli.shared.output_files import refuse_overwriting
    from fairlead.mechanisms.factory import create_mechanism
    from fairlead.sim.compare import check_mechanism, default_restore_cost_s, split_policies
    from fairlead.sim.compare import compare as run_all
    from fairlead.sim.report.parameters import ComparisonOptions

    generator = {
        "--seeds": seeds,
        "--loads": loads,
        "--jobs": jobs,
        "--kind": kind,
        "--tenants": tenants,
        "--duration-factor": duration_factor,
    }
    _check_kind(
        generator,
        {"--trace": trace, "--skip-impossible": skip_impossible or None, "--window": window},
        {"--search": search, "--strategies": strategies, "--target": target},
    )
    files = {"--trace": trace, "--search": search, "--cluster": cluster, "--speeds": speeds}
    refuse_overwriting("--out", *(out / name for name in FILES.values()), inputs=files)
    names = split_policies(policies)
    mechanisms = [create_mechanism(name, mechanism, round_s) for name in names]
    cost_s = default_restore_cost_s(mechanisms) if restore_cost is None else restore_cost
    if search is not None:
        searches = search_comparison(
            search,
            strategies or DEFAULT_STRATEGIES,
            target,
            policies=names,
            cluster=cluster,
            speeds=speeds,
            seeds=seeds or _GENERATED["--seeds"],
            mechanism=mechanism,
            round_s=round_s,
            restore_cost_s=cost_s,
        )
        if mechanism is not None:
            check_mechanism(names, mechanism, searches.cluster)
        _make(out)
        if restore_cost is None:
            _note_restore_cost(cost_s)
        number = workers or _cores()
        run_and_report(
            searches, out, files=files, workers=number, progress=_progress, as_json=as_json
        )
        return
    options = ComparisonOptions(
        policies=names,
        traces=trace if trace is not None else _generated(generator),
        cluster=cluster,
        speeds=speeds,
        mechanism=mechanism,
        round_s=round_s,
        restore_cost_s=cost_s,
        window=window,
        skip_impossible=skip_impossible,
    )
    comparison = _comparison(options, mechanisms)
    if mechanism is not None:
        check_mechanism(names, mechanism, comparison.cluster)
    _make(out)
    if restore_cost is None:
        _note_restore_cost(comparison.restore_cost_s)
    else:
        warn_if_endless(restore_cost, mechanisms)
    warn_if_assumed(comparison.speeds, comparison.cluster)
    with _progress(len(list(comparison.runs()))) as on_done:
        outcomes = run_all(comparison, workers=workers or _cores(), on_done=on_done)
    paths = write_results(out, comparison, outcomes, options)
    print_results(comparison, outcomes, paths, as_json=as_json)


def _check_kind(
    generated: Mapping[str, object], traced: Mapping[str, object], searched: Mapping[str, object]
) -> None:
    """Raise UsageError for options of another kind of comparison."""
    if searched["--search"] is not None:
        orders = {name: value for name, value in generated.items() if name != "--seeds"}
        _refuse("--search", {**orders, **traced}, "traces")
    elif traced["--trace"] is not None:
        _refuse("--trace", generated, "generated traces")
    elif traced["--skip-impossible"]:
        raise UsageError("--skip-impossible: needs --trace: generated jobs fit the cluster")
    if searched["--search"] is None:
        for option, value in searched.items():
            if value is not None:
                raise UsageError(f"{option}: needs --search: it describes a search")


def _refuse(by: str, options: Mapping[str, object], described: str) -> None:
    for option, value in options.items():
        if value is not None:
            raise UsageError(f"{option}: excluded by {by}: it describes {described}")


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


def _comparison(options: "ComparisonOptions", mechanisms: Sequence[object]) -> "Comparison":
    """Return the comparison after all checks that are possible before it runs."""
    from fairlead.cli.shared.skipped_jobs import suggest_skipping
    from fairlead.files import check_trace, read_cluster, read_trace, skip_impossible
    from fairlead.files.speeds.prior import simulated_speeds
    from fairlead.sim.compare import Comparison
    from fairlead.sim.runs import parse_window

    supported = _supported_by_all(mechanisms)
    cluster = read_cluster(options.cluster)
    speeds = simulated_speeds(options.speeds, cluster.accelerators)
    traces = options.traces
    jobs = read_trace(traces) if isinstance(traces, str) else None
    skipped: tuple[SkippedJob, ...] = ()
    if jobs is not None and options.skip_impossible:
        jobs, skipped = skip_impossible(jobs, speeds, cluster, supported)
    generated = None if isinstance(traces, str) else traces
    n_jobs = generated.jobs if generated else len(jobs or ())
    window = parse_window(options.window, n_jobs)
    comparison = Comparison(
        policies=options.policies,
        cluster=cluster,
        speeds=speeds,
        jobs=jobs.jobs if jobs else (),
        skipped=skipped,
        recipe=_recipe(generated, window) if generated else None,
        seeds=tuple(range(generated.seeds)) if generated else (None,),
        loads=generated.loads or (None,) if generated else (None,),
        mechanism=options.mechanism,
        round_s=options.round_s,
        restore_cost_s=options.restore_cost_s,
        window=window,
    )
    # One generated trace suffices for the check: all draw from the same workloads and gangs.
    with recipe_options():
        first = comparison.trace(next(comparison.runs()))
    with suggest_skipping() if jobs else nullcontext():
        check_trace(jobs or first, speeds, cluster, supported)
    return comparison


def _supported_by_all(mechanisms: Sequence[object]) -> "Capabilities":
    from fairlead.model.capabilities import Capabilities, capabilities_of

    capabilities = [capabilities_of(mechanism) for mechanism in mechanisms]
    return Capabilities(
        mixed_gangs=all(each.mixed_gangs for each in capabilities),
        per_accelerator_gangs=all(each.per_accelerator_gangs for each in capabilities),
    )


def _note_restore_cost(restore_cost_s: float) -> None:
    """Print the restore cost that the results rest on, if the user gave none."""
    from fairlead.cli.shared.output import messages

    messages.print(
        f"--restore-cost: {restore_cost_s:g} s lost at each restart of a job; 0 ignores restarts",
        highlight=False,
        soft_wrap=True,
    )


def _recipe(traces: "GeneratedTraces", window: tuple[int, int] | None) -> "Recipe":
    from fairlead.sim.generate import Recipe

    with recipe_options():
        return Recipe(
            kind=traces.kind,
            jobs=traces.jobs,
            tenants=traces.tenants,
            duration_factor=traces.duration_factor,
            window=window,
        )


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
def _progress(runs: int) -> "Iterator[Callable[[], None]]":
    """Show the number of completed runs on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from fairlead.cli.shared.output import messages

    if not messages.is_terminal:
        yield lambda: None
        return
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=messages, transient=True) as bar:
        task = bar.add_task("runs", total=runs)
        yield lambda: bar.advance(task)
