"""``fairlead speeds`` of a running scheduler."""

from collections.abc import Mapping

import typer

from fairlead.cli.shared.options import Json

app = typer.Typer(
    help="Show the speeds that the scheduler believes, and the bundled speed tables.\n\n"
    "Example:  fairlead speeds tables",
    no_args_is_help=True,
)


@app.command("show")
def show(as_json: Json = False) -> None:
    """Show the believed speeds of the workloads of jobs that have not ended, with their source.

    Measured: reported by running jobs. Table: from the server's speed table. Assumed: an
    estimate from data sheets and other measurements, because no job has measured it yet; it is
    within the interval with 80 % probability. Tenants see the workloads of their own jobs.

    Example:  fairlead speeds show
    """
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import pluralise, table
    from fairlead.client import Client

    answer = Client.from_environment().get("/v1/speeds")
    if as_json:
        print_json(answer)
        return
    rows = [
        [
            workload_label(row),
            row["tenant"] or "",
            str(row["gang"]),
            row["accelerator"],
            f"{row['steps_per_s']:.4g}",
            row["source"],
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


def workload_label(speed: Mapping[str, object]) -> str:
    """Return the workload of a speed, or the job that names none."""
    if speed["workload"]:
        return str(speed["workload"])
    return f"job {speed['job']}" if speed["job"] else "(none)"
