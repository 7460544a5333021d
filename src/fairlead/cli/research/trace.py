"""``fairlead trace``: generate, convert and validate traces."""

import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.shared.options import Json
from fairlead.model.errors import InputError, UsageError

if TYPE_CHECKING:
    from fairlead.files.traces.formats import Form as FormName
    from fairlead.files.traces.summary import Summary
    from fairlead.model.cluster import Cluster
    from fairlead.model.job import Job
    from fairlead.sim.generate import Recipe

app = typer.Typer(
    name="trace",
    help="Generate, convert and validate traces: the jobs of a run, one a row.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class Kind(StrEnum):
    """Which of Gavel's generators."""

    STATIC = "static"
    STATIC_MULTIPLE = "static-multiple"
    CONTINUOUS_SINGLE = "continuous-single"
    CONTINUOUS_MULTIPLE = "continuous-multiple"


class From(StrEnum):
    """Which system wrote the log."""

    AUTO = "auto"
    GAVEL = "gavel"
    PHILLY = "philly"
    ITP = "itp"
    SACCT = "sacct"
    HELIOS = "helios"
    ALIBABA = "alibaba"


_FORMS: "dict[From, FormName | None]" = {
    From.AUTO: None,
    From.GAVEL: "gavel",
    From.PHILLY: "philly",
    From.ITP: "itp",
    From.SACCT: "sacct",
    From.HELIOS: "helios",
    From.ALIBABA: "alibaba",
}

Seed = Annotated[int, typer.Option(help="Same seed, same trace, on any machine.")]
Speeds = Annotated[
    str, typer.Option("--speeds", help="Speeds file, or the bundled table gandiva-fair.")
]
KindOption = Annotated[
    Kind, typer.Option(help="static: all at 0; continuous: Poisson; multiple: with gangs.")
]
Jobs = Annotated[int, typer.Option(help="How many jobs.")]
Rate = Annotated[float, typer.Option(help="Arrivals per hour.")]
Tenants = Annotated[int, typer.Option(help="How many tenants submit.")]
HighShare = Annotated[float, typer.Option(help="Share of jobs with a high weight.")]
HighWeight = Annotated[float, typer.Option(help="Their weight.")]
Deadlines = Annotated[
    str, typer.Option(help="Deadlines as multiples of the duration, e.g. 1.2,2,10.")
]
MaxGang = Annotated[int | None, typer.Option(min=1, help="Largest gang.")]
DurationFactor = Annotated[float, typer.Option(help="Multiplies every duration.")]
Fit = Annotated[
    str | None, typer.Option(help="Draw only gangs that fit it, e.g. v100=36/4,k80=36/4.")
]
Window = Annotated[
    str | None,
    typer.Option(help="Jobs A:B will be measured; arrivals go on after B, 110 % of B−A."),
]
Out = Annotated[
    Path | None, typer.Option(help=".csv or .jsonl, optionally .gz; stdout without it, or as -.")
]
Form = Annotated[From, typer.Option("--from", help="Who wrote the log.")]
Tenant = Annotated[
    str | None,
    typer.Option(help="Keep one tenant: Philly's virtual cluster, ITP's cluster, account."),
]


@app.command()
def generate(
    *,
    kind: KindOption = Kind.CONTINUOUS_SINGLE,
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

    from fairlead.files import read_cluster, read_speeds
    from fairlead.files.traces.summary import summarise
    from fairlead.sim.generate import generate as generate_jobs

    recipe = _recipe(
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
    table = read_speeds(speeds)
    held = read_cluster(cluster) if cluster is not None else None
    found = generate_jobs(recipe, table, random.Random(seed), held)
    _write(found, out, summarise(found, table, held), as_json=as_json)


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="The log.")],
    out: Annotated[
        Path | None, typer.Argument(metavar="OUT", help="The trace; stdout without it, or as -.")
    ] = None,
    *,
    form: Form = From.AUTO,
    speeds: Speeds = "gandiva-fair",
    seed: Seed = 0,
    vc: Tenant = None,
    max_gang: MaxGang = None,
    as_json: Json = False,
) -> None:
    """Convert a log of Gavel, Philly, ITP, Helios, Alibaba or Slurm to a trace.

    Logs that name no workload get one drawn from the speeds table: same seed and job id, same
    workload. In these a gang that the table lacks, or above --max-gang, becomes the largest below
    it; device-hours are kept. Logs of Gavel name their workloads and keep their gangs.

    Example: fairlead trace convert --from philly --vc 0e4a51 --speeds speeds.csv in.csv out.csv
    """
    from fairlead.files import read_speeds
    from fairlead.files.traces.convert import convert as convert_log
    from fairlead.files.traces.summary import summarise

    table = read_speeds(speeds)
    found = convert_log(
        source,
        table,
        form=_FORMS[form],
        seed=seed,
        tenant=vc,
        max_gang=max_gang,
    )
    jobs = found.trace.jobs
    extra: dict[str, object] = {"from": found.form, "left_out": found.left_out}
    _write(jobs, out, summarise(jobs, table), as_json=as_json, extra=extra)


@app.command()
def validate(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="CSV, JSONL or Gavel's form.")],
    speeds: Annotated[
        str | None, typer.Option(help="Also check workloads and gangs against this table.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Also check that every gang fits, and tell the load.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a trace and sum it up; the first fault is an error with its line.

    Example: fairlead trace validate trace.csv --speeds gandiva-fair --cluster v100=4,k80=8
    """
    from fairlead.files import check_trace, read_cluster, read_speeds, read_trace
    from fairlead.files.traces.summary import summarise

    if cluster is not None and speeds is None:
        raise UsageError("--cluster needs --speeds: whether a job runs there is a matter of speed")
    found = read_trace(trace)
    table = read_speeds(speeds) if speeds is not None else None
    held = read_cluster(cluster) if cluster is not None else None
    if table is not None:
        check_trace(found, table, held or _large_cluster(table.accelerators, found))
    summary = summarise(found, table, held)
    if as_json:
        _print_json({"trace": str(trace), **summary.as_json()})
    else:
        sys.stdout.write(summary.as_text())


def _recipe(**settings: object) -> "Recipe":
    from fairlead.sim.generate import Recipe

    try:
        return Recipe(**settings)  # type: ignore[arg-type]  # Recipe checks each of them
    except InputError as error:
        option = (error.field or "").replace("_", "-")
        raise UsageError(f"--{option}: {error.problem}; {error.fix}") from None


def _window(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, colon, last = text.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal() and len(text) < 20):
        raise UsageError(f"--window: {text[:40]!r} is not A:B; give two job numbers: 4000:5000")
    return int(first), int(last)


def _numbers(text: str) -> tuple[float, ...]:
    from fairlead.files.parsing.fields import number

    try:
        return tuple(number(part) for part in text.split(",") if part)
    except InputError as error:
        raise UsageError(f"--deadlines: {error.problem}; give factors: 1.2,2,10") from None


def _large_cluster(accelerators: Sequence[str], jobs: "Sequence[Job]") -> "Cluster":
    """Return a cluster that no gang is too large for."""
    from fairlead.model.cluster import Cluster

    most = max(max((job.gang, *job.gangs.values())) for job in jobs)
    return Cluster.of(dict.fromkeys(accelerators, most))


def _write(
    jobs: "Sequence[Job]",
    out: Path | None,
    summary: "Summary",
    *,
    as_json: bool,
    extra: dict[str, object] | None = None,
) -> None:
    """Write the trace to its file or to stdout, and say on stderr what was written."""
    from fairlead.files import format_trace, write_trace
    from fairlead.files.traces.trace import job_members

    said = {**summary.as_json(), **(extra or {})}
    if out is not None and str(out) != "-":
        write_trace(jobs, out)
        if as_json:
            _print_json({"out": str(out), **said})
        else:
            typer.echo(f"wrote {len(jobs)} jobs to {out}", err=True)
    elif as_json:
        _print_json({"summary": said, "jobs": [job_members(job) for job in jobs]})
    else:
        sys.stdout.write(format_trace(jobs))
    left_out = said.get("left_out")
    if left_out and not as_json:
        typer.echo(f"left out {left_out} rows that are no job that ran on GPUs", err=True)


def _print_json(document: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
