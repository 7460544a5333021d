"""``fairlead speeds`` of a running scheduler."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.research.speed_tables import tables
from fairlead.cli.shared.options import Json

if TYPE_CHECKING:
    from fairlead.model.speeds.key import SpeedKey

app = typer.Typer(
    help="Show, export, check, import and forget speeds; list the bundled speed tables.\n\n"
    "Example:  fairlead speeds show",
    no_args_is_help=True,
)


@app.command("show")
def show(
    *,
    gangs: Annotated[
        str | None,
        typer.Option(
            help="Numbers of devices, separated by commas, such as 1,2,4,8.",
            show_default="those of the jobs",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the believed speeds of the workloads of jobs that have not ended, with their source.

    Measured: reported by running jobs. Table: from the server's speed table. Assumed: an
    estimate from data sheets and other measurements, because no job has measured it yet; it is
    within the interval with 80 % probability. Tenants see the workloads of their own jobs.

    With --gangs, the speeds of these gangs: the scaling of each workload. Gangs that are spread
    over more nodes than they need have a row of their own where their speed differs.

    Example:  fairlead speeds show

    Example:  fairlead speeds show --gangs 1,2,4,8
    """
    from urllib.parse import urlencode

    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import pluralise, table
    from fairlead.client import Client

    path = "/v1/speeds" + ("" if gangs is None else f"?{urlencode(_gang_parameters(gangs))}")
    answer = Client.from_environment().get(path)
    if as_json:
        print_json(answer)
        return
    if not answer:
        typer.echo("no speeds: all jobs have ended; `fairlead speeds tables` lists bundled ones")
        return
    rows = [
        [
            workload_label(row),
            row["tenant"] or "",
            _gang_label(row),
            row["accelerator"],
            f"{row['steps_per_s']:.4g}",
            _source_label(row),
            "" if row.get("low") is None else f"{row['low']:.2g} to {row['high']:.2g}",
            "" if row["age_s"] is None else f"{row['age_s']:.0f} s",
        ]
        for row in answer
    ]
    heads = [
        "workload",
        "tenant",
        "gang",
        "accelerator",
        "steps/s",
        "source",
        "80 % interval",
        "age",
    ]
    table(pluralise(len(answer), "speed"), heads, rows, figures=False)


def _gang_label(row: Mapping[str, Any]) -> str:
    """Return the devices of a gang: ``4``, or ``4 spread``."""
    return f"{row['gang']} spread" if row.get("placement") == "spread" else str(row["gang"])


def _source_label(row: Mapping[str, Any]) -> str:
    """Return the source of a speed, with the declared speed on which an assumed one rests."""
    declared = row.get("declared_steps_per_s")
    return row["source"] if declared is None else f"{row['source']}, declared {declared:.4g}"


def _gang_parameters(text: str) -> list[tuple[str, int]]:
    from fairlead.model.errors import UsageError

    gangs = [part.strip() for part in text.split(",")]
    if not all(gang.isascii() and gang.isdecimal() and len(gang) < 7 for gang in gangs):
        raise UsageError(f"--gangs: {text!r}: expected numbers of devices, such as 1,2,4,8")
    return [("gang", int(gang)) for gang in gangs]


def workload_label(speed: Mapping[str, object]) -> str:
    """Return the workload of a speed, or the job that names none."""
    if speed["workload"]:
        return str(speed["workload"])
    return f"job {speed['job']}" if speed["job"] else "(none)"


@app.command("pairs")
def pairs(*, as_json: Json = False) -> None:
    """Show the speeds that packed jobs have measured beside each other on the same devices.

    Policies with the option packed pack two jobs if their speeds, each relative to the job alone,
    sum to more than 1. Tenants see the speeds of their own jobs.

    Example:  fairlead speeds pairs
    """
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import pluralise, table
    from fairlead.client import Client

    answer = Client.from_environment().get("/v1/speeds/pairs")
    if as_json:
        print_json(answer)
        return
    heads = ["workload", "tenant", "beside", "of tenant", "gang", "accelerator"]
    rows = [
        [
            *(row[name] for name in ("workload", "tenant", "partner", "partner_tenant")),
            str(row["gang"]),
            row["accelerator"],
            f"{row['steps_per_s']:.4g}",
            f"{row['alone_steps_per_s']:.4g}",
            f"{row['age_s']:.0f} s",
        ]
        for row in answer
    ]
    title = f"{pluralise(len(answer), 'speed')} beside a partner"
    table(title, [*heads, "steps/s", "alone", "age"], rows, figures=False)


@app.command("export")
def export(
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write; without it, standard output.")
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(help="Tenant whose measurements are written, instead of all.")
    ] = None,
) -> None:
    """Write the measured speeds as a speed table, which another cluster can start from.

    Where several tenants have measured a workload, the median counts. Speeds of jobs without a
    workload are left out. Tenants get their own measurements.

    Example:  fairlead speeds export --out measured.csv
    """
    import sys

    from fairlead.files import format_speeds, write_speeds
    from fairlead.model.errors import UsageError
    from fairlead.model.speeds.table import SpeedTable

    measured = SpeedTable(_measured(tenant))
    if not any(measured.steps_per_s.values()):
        raise UsageError("nothing to export: no running job has measured its speed yet")
    if out is None:
        sys.stdout.write(format_speeds(measured))
    else:
        write_speeds(measured, out)


@app.command("check")
def check(
    file: Annotated[
        str | None,
        typer.Argument(metavar="TABLE", help="Table to check instead of the server's own."),
    ] = None,
    *,
    tolerance: Annotated[
        float,
        typer.Option(help="Relative difference up to which speeds agree, a fraction.", min=0.0),
    ] = 0.1,
    as_json: Json = False,
) -> None:
    """Compare a speed table with the measured speeds; exit status 1 if some differ.

    Speeds that only one of the two has are not compared.

    Example:  fairlead speeds check

    Example:  fairlead speeds check speeds.csv --tolerance 0.2
    """
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import pluralise, table
    from fairlead.files import read_speeds

    listed = _listed() if file is None else read_speeds(file).steps_per_s
    measured = _measured(None)
    differing = [
        {
            "workload": key.workload,
            "gang": key.gang,
            "accelerator": key.accelerator,
            "placement": key.placement,
            "table": listed[key],
            "measured": speed,
        }
        for key, speed in measured.items()
        if key in listed and abs(speed - listed[key]) > tolerance * listed[key]
    ]
    compared = sum(key in listed for key in measured)
    if as_json:
        print_json({"compared": compared, "differing": differing})
    else:
        heads = ["workload", "gang", "accelerator", "placement", "table", "measured"]
        title = f"{len(differing)} of {pluralise(compared, 'measured speed')} differ"
        rows = [[_cell(value) for value in row.values()] for row in differing]
        table(title, heads, rows, figures=False)
    if differing:
        raise typer.Exit(1)


@app.command("import")
def import_speeds(
    file: Annotated[
        str, typer.Argument(metavar="TABLE", help="CSV or Gavel JSON, or a bundled table.")
    ],
    *,
    replace: Annotated[
        bool, typer.Option("--replace", help="Drop the other entries of the server's table.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Add speeds to the table of the running server, in a round that starts now; for admins.

    Measured speeds stay, and count more than the table. The change outlives restarts, until the
    server is started with other settings for policy, mechanism, round, weight scope or speeds.

    Example:  fairlead speeds import measured.csv
    """
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import pluralise
    from fairlead.client import Client
    from fairlead.files import format_speeds, read_speeds

    body = {"speeds": format_speeds(read_speeds(file)), "replace": replace}
    answer = Client.from_environment().ask("PUT", "/v1/speeds/table", body)
    if as_json:
        print_json(answer)
    else:
        typer.echo(f"{pluralise(answer['imported'], 'speed')} imported; now {answer['speeds']}")


@app.command("forget")
def forget(
    *,
    workload: Annotated[str, typer.Option(help="Workload, or id of a job without one.")] = "",
    tenant: Annotated[str, typer.Option(help="Tenant whose measurements are dropped.")] = "",
    accelerator: Annotated[str, typer.Option(help="Accelerator they were made on.")] = "",
    everything: Annotated[
        bool, typer.Option("--all", help="Drop all measured speeds of all tenants.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Drop measured speeds, so that running jobs measure them again; for admins.

    Drops those that fit all the given names. Also lets a job try an accelerator again on which it
    has run out of memory.

    Example:  fairlead speeds forget --workload bert --accelerator k80
    """
    from urllib.parse import urlencode

    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import pluralise
    from fairlead.client import Client
    from fairlead.model.errors import UsageError
    from fairlead.model.speeds.measured import Selection

    wanted = Selection(tenant, workload, accelerator).wanted()
    if everything == bool(wanted):
        names = "--workload, --tenant and --accelerator"
        raise UsageError(f"nothing chosen: expected some of {names}, or --all without these")
    path = "/v1/speeds/measured" + (f"?{urlencode(wanted)}" if wanted else "")
    answer = Client.from_environment().ask("DELETE", path)
    if as_json:
        print_json(answer)
    else:
        typer.echo(f"{pluralise(answer['forgotten'], 'speed')} forgotten")


def _measured(tenant: str | None) -> dict["SpeedKey", float]:
    """Return the measured speeds of named workloads, medians over tenants."""
    from statistics import median

    speeds: dict[SpeedKey, list[float]] = {}
    for key, row in _measured_rows():
        if tenant in (None, row["tenant"]):
            speeds.setdefault(key, []).append(row["steps_per_s"])
    return {key: median(values) for key, values in speeds.items()}


def _listed() -> dict["SpeedKey", float]:
    """Return the server's table where something was measured."""
    rows = ((key, row["table_steps_per_s"]) for key, row in _measured_rows())
    return {key: speed for key, speed in rows if speed is not None}


def _measured_rows() -> list[tuple["SpeedKey", dict[str, Any]]]:
    from fairlead.client import Client
    from fairlead.model.speeds.key import SpeedKey

    rows = Client.from_environment().get("/v1/speeds/measured")
    names = ("workload", "gang", "accelerator", "placement")
    return [(SpeedKey(*(row[name] for name in names)), row) for row in rows if row["workload"]]


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


app.command("tables")(tables)
