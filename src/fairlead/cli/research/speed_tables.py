"""``fairlead speeds tables``."""

import sys
from typing import Annotated, Any

import typer

from fairlead.cli.shared.options import Json


def tables(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Bundled table to write as CSV.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the bundled speed tables, which --speeds takes by name; with NAME, write one as CSV.

    The CSV is a start for a table of your own: add rows for your workloads and accelerators. Needs
    no server.

    Example:  fairlead speeds tables

    Example:  fairlead speeds tables mlperf-2023 > speeds.csv
    """
    from fairlead.cli.shared.json_output import print_json
    from fairlead.files import format_speeds, read_speeds
    from fairlead.files.bundled import SPEEDS
    from fairlead.files.parsing.fields import unknown_name_error

    if name is not None and name not in SPEEDS:
        raise unknown_name_error("table", name, SPEEDS).within(field="NAME")
    entries = [_entry(each) for each in (SPEEDS if name is None else [name])]
    if as_json:
        print_json(entries)
    elif name is not None:
        sys.stdout.write(format_speeds(read_speeds(name)))
    else:
        for entry in entries:
            typer.echo(
                f"{entry['name']}: {entry['source']}\n"
                f"  accelerators: {', '.join(entry['accelerators'])}\n"
                f"  workloads: {', '.join(entry['workloads'])}\n"
                f"  a step is {entry['step']}"
            )


def _entry(name: str) -> dict[str, Any]:
    from fairlead.files import read_speeds
    from fairlead.files.bundled import SPEEDS

    speeds, about = read_speeds(name), SPEEDS[name]
    return {
        "name": name,
        "workloads": list(speeds.workloads),
        "accelerators": list(speeds.accelerators),
        "step": about.step,
        "source": about.source,
    }
