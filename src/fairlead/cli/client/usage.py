"""``fairlead usage``: device hours by day, tenant and accelerator."""

from typing import Annotated, Any

import typer

from fairlead.cli.shared.options import Json

_DATE = "a date such as 2026-11-16, in UTC"


def usage(
    *,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.")] = None,
    first: Annotated[
        str | None, typer.Option("--from", metavar="DATE", help=f"First day: {_DATE}.")
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="DATE", help=f"Last day: {_DATE}.")
    ] = None,
    csv: Annotated[
        bool, typer.Option("--csv", help="Write comma-separated values, one row per day.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the device hours of tenants by accelerator, and their price where it is known.

    The table adds up all days; --csv and --json have one entry per day. The server keeps 400
    days. Devices that two jobs share count for both.

    Example:  fairlead usage --from 2026-11-01 --csv
    """
    from fairlead.cli.shared.csv_output import print_csv
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import table
    from fairlead.client import Client
    from fairlead.model.errors import UsageError

    if csv and as_json:
        raise UsageError("--csv: not with --json: expected one of them")
    server = Client.from_environment()
    rows = server.get("/v1/usage", **{"tenant": tenant, "from": first, "to": last})
    if as_json:
        print_json(rows)
    elif csv:
        print_csv(("day", "tenant", "accelerator", "device_hours", "usd"), rows)
    else:
        heads = ["tenant", "accelerator", "device hours", "USD"]
        table("usage", heads, _sums(rows))


def _sums(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Return the sums over all days as rows of a table, the largest first."""
    sums: dict[tuple[str, str], tuple[float, float | None]] = {}
    for row in rows:
        key = row["tenant"], row["accelerator"]
        hours, usd = sums.get(key, (0.0, 0.0))
        both = None if usd is None or row["usd"] is None else usd + row["usd"]
        sums[key] = hours + row["device_hours"], both
    return [
        [tenant, accelerator, f"{hours:.2f}", "–" if usd is None else f"{usd:.2f}"]
        for (tenant, accelerator), (hours, usd) in sorted(
            sums.items(), key=lambda entry: (-entry[1][0], entry[0])
        )
    ]
