"""``fairlead trace``: generate, convert and validate traces."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.shared.options import Json
from fairlead.model.errors import InputError, UsageError

if TYPE_CHECKING:
    from fairlead.files.traces.formats import LogFormat
    from fairlead.files.traces.summary import Summary
    from fairlead.model.cluster import Cluster
    from fairlead.model.job import Job

app = typer.Typer(
    name="trace",
    help="Generate, convert and validate traces: the jobs of a run, one per row.\n\n"
    "Example:  fairlead trace generate --jobs 500 --rate 3 --out trace.csv",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class GeneratorKind(StrEnum):
    """Gavel's trace generators."""

    STATIC = "static"
    STATIC_MULTIPLE = "static-multiple"
    CONTINUOUS_SINGLE = "continuous-single"
    CONTINUOUS_MULTIPLE = "continuous-multiple"


class LogSource(StrEnum):
    """System that wrote the log."""

    AUTO = "auto"
    GAVEL = "gavel"
    PHILLY = "philly"
    ITP = "itp"
    SACCT = "sacct"
    HELIOS = "helios"
    ALIBABA = "alibaba"


_FORMATS: "dict[LogSource, LogFormat | None]" = {
    LogSource.AUTO: None,
    LogSource.GAVEL: "gavel",
    LogSource.PHILLY: "philly",
    LogSource.ITP: "itp",
    LogSource.SACCT: "sacct",
    LogSource.HELIOS: "helios",
    LogSource.ALIBABA: "alibaba",
}

Seed = Annotated[
    int, typer.Option(help="Seed; the same seed gives the same trace on any machine.")
]
Speeds = Annotated[
    str,
    typer.Option(
        "--speeds",
        help="Speed table: CSV, Gavel JSON, or a bundled one by name: see `fairlead speeds"
        " tables`.",
    ),
]
KindOption = Annotated[
    GeneratorKind,
    typer.Option(help="static: all jobs at time 0; continuous: Poisson; multiple: with gangs."),
]
Jobs = Annotated[int, typer.Option(help="Number of jobs.")]
Rate = Annotated[float, typer.Option(help="Arrivals per hour.")]
Tenants = Annotated[int, typer.Option(help="Number of tenants.")]
HighShare = Annotated[float, typer.Option(help="Fraction of jobs with a high weight, 0 to 1.")]
HighWeight = Annotated[
    float, typer.Option(help="Weight of the jobs that --high-share selects; others have 1.")
]
Deadlines = Annotated[
    str,
    typer.Option(
        help="Deadlines as multiples of the duration, such as 1.2,2,10.", show_default="none"
    ),
]
MaxGang = Annotated[
    int | None, typer.Option(min=1, help="Most devices of a gang.", show_default="no limit")
]
DurationFactor = Annotated[
    float, typer.Option(help="Factor on all durations, which are 10^1.5 to 10^4 minutes.")
]
Fit = Annotated[
    str | None, typer.Option(help="Cluster that all gangs must fit, such as v100=36/4,k80=36/4.")
]
Window = Annotated[
    str | None,
    typer.Option(
        help="Jobs to be measured, A:B; arrivals continue after B for 110 % of B−A jobs."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(help="Trace to write: .csv or .jsonl, optionally .gz; default or -: stdout."),
]
FromOption = Annotated[LogSource, typer.Option("--from", help="System that wrote the log.")]
Tenant = Annotated[
    str | None,
    typer.Option(
        help="Keep one tenant: a virtual cluster of Philly, a cluster of ITP, or an account."
    ),
]


@app.command()
def generate(
    *,
    kind: KindOption = GeneratorKind.CONTINUOUS_SINGLE,
    jobs: Jobs = 100,
    rate: Rate = 4.0,
    seed: Seed = 0,
    tenants: Tenants = 1,
    high_share: HighShare = 0.0,
    high_weight: HighWeight = 5.0,
    deadlines: Deadlines = "",
    max_gang: MaxGang = None,
    duration_factor: DurationFactor = 1.0,
    speeds: Speeds = "gandiva-fair",
    cluster: Fit = None,
    window: Window = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Generate a trace as Gavel does: Poisson arrivals, durations of 10^x minutes.

    A job's steps are its duration times its speed on v100 (or the fastest accelerator).

    Example: fairlead trace generate --kind continuous-multiple --jobs 500 --rate 2.6 --seed 1
    --tenants 3 --out trace.csv
    """
    import random

    from fairlead.cli.shared.output_files import refuse_overwriting
    from fairlead.files import read_cluster, read_speeds
    from fairlead.files.traces.summary import summarise
    from fairlead.sim.generate import Recipe
    from fairlead.sim.generate import generate as generate_jobs

    with recipe_options():
        recipe = Recipe(
            kind=kind.value,
            jobs=jobs,
            rate=rate,
            tenants=tenants,
            high_share=high_share,
            high_weight=high_weight,
            deadlines=_numbers(deadlines),
            max_gang=max_gang,
            duration_factor=duration_factor,
            window=_window(window),
        )
    if out is not None:
        refuse_overwriting("--out", out, inputs={"--speeds": speeds, "--cluster": cluster})
    table = read_speeds(speeds)
    fit = read_cluster(cluster) if cluster is not None else None
    with recipe_options():
        generated = generate_jobs(recipe, table, random.Random(seed), fit)
    _write(generated, out, summarise(generated, table, fit), as_json=as_json)


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="Log to convert.")],
    out: Annotated[
        Path | None, typer.Argument(metavar="OUT", help="Trace to write; default or -: stdout.")
    ] = None,
    *,
    form: FromOption = LogSource.AUTO,
    speeds: Speeds = "gandiva-fair",
    seed: Seed = 0,
    vc: Tenant = None,
    max_gang: MaxGang = None,
    as_json: Json = False,
) -> None:
    """Convert a log of Gavel, Philly, ITP, Helios, Alibaba or Slurm to a trace.

    If the log names no workloads, they are drawn from the speed table: the same seed and job id
    give the same workload. Gangs that the table lacks, or above --max-gang, become the largest
    smaller one; device-hours stay the same. Gavel's logs name workloads, so their gangs stay.

    Example: fairlead trace convert --from philly --vc 0e4a51 --speeds speeds.csv in.csv out.csv
    """
    from fairlead.cli.shared.output_files import refuse_overwriting
    from fairlead.files import read_speeds
    from fairlead.files.traces.convert import convert as convert_log
    from fairlead.files.traces.summary import summarise

    if out is not None:
        refuse_overwriting("OUT", out, inputs={"IN": source, "--speeds": speeds})
    table = read_speeds(speeds)
    converted = convert_log(
        source,
        table,
        form=_FORMATS[form],
        seed=seed,
        tenant=vc,
        max_gang=max_gang,
    )
    jobs = converted.trace.jobs
    extra: dict[str, object] = {"from": converted.form, "left_out": converted.left_out}
    _write(jobs, out, summarise(jobs, table), as_json=as_json, extra=extra)


@app.command()
def validate(
    trace: Annotated[
        Path, typer.Argument(metavar="TRACE", help="Trace: CSV, JSONL or Gavel's format.")
    ],
    speeds: Annotated[
        str | None, typer.Option(help="Speed table to check workloads and gangs against.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Cluster that every gang must fit; also shows the load.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a trace and summarise it; the first fault is an error with its line.

    Example: fairlead trace validate trace.csv --speeds gandiva-fair --cluster v100=4,k80=8
    """
    from fairlead.files import check_trace, read_cluster, read_speeds, read_trace
    from fairlead.files.traces.summary import summarise

    if cluster is not None and speeds is None:
        raise UsageError("--cluster: needs --speeds, to know which jobs can run there")
    jobs = read_trace(trace)
    table = read_speeds(speeds) if speeds is not None else None
    fit = read_cluster(cluster) if cluster is not None else None
    if table is not None:
        check_trace(jobs, table, fit or _large_cluster(table.accelerators, jobs))
    summary = summarise(jobs, table, fit)
    if as_json:
        _print_json({"trace": str(trace), **summary.as_json()})
    else:
        sys.stdout.write(summary.as_text())


@contextmanager
def recipe_options() -> Iterator[None]:
    """Name the option in the error about a setting of a generated trace."""
    try:
        yield
    except InputError as error:
        if error.field is None:
            raise
        option = error.field.replace("_", "-")
        raise UsageError(f"--{option}: {error.problem}: {error.fix}") from None


def _window(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, colon, last = text.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal() and len(text) < 20):
        raise UsageError(f"--window: {text[:40]!r}: expected two job numbers A:B, as 4000:5000")
    return int(first), int(last)


def _numbers(text: str) -> tuple[float, ...]:
    from fairlead.files.parsing.fields import number

    try:
        return tuple(number(part) for part in text.split(",") if part)
    except InputError as error:
        raise UsageError(f"--deadlines: {error.problem}: expected factors: 1.2,2,10") from None


def _large_cluster(accelerators: Sequence[str], jobs: "Sequence[Job]") -> "Cluster":
    """Return a cluster that fits every gang."""
    from fairlead.model.cluster import Cluster

    largest = max(max((job.gang, *job.gangs.values())) for job in jobs)
    return Cluster.of(dict.fromkeys(accelerators, largest))


def _write(
    jobs: "Sequence[Job]",
    out: Path | None,
    summary: "Summary",
    *,
    as_json: bool,
    extra: dict[str, object] | None = None,
) -> None:
    """Write the trace to its file or to stdout, and a summary to stderr."""
    from fairlead.cli.shared.output import pluralise
    from fairlead.files import format_trace, write_trace
    from fairlead.files.traces.trace import job_members

    figures = {**summary.as_json(), **(extra or {})}
    if out is not None and str(out) != "-":
        write_trace(jobs, out)
        if as_json:
            _print_json({"out": str(out), **figures})
        else:
            typer.echo(f"wrote {pluralise(len(jobs), 'job')} to {out}", err=True)
    elif as_json:
        _print_json({"summary": figures, "jobs": [job_members(job) for job in jobs]})
    else:
        sys.stdout.write(format_trace(jobs))
    left_out = figures.get("left_out")
    if isinstance(left_out, int) and left_out and not as_json:
        rows = pluralise(left_out, "row")
        typer.echo(f"left out {rows} without a completed GPU job", err=True)


def _print_json(document: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
