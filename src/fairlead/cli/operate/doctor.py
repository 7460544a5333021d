"""``fairlead doctor``."""

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.shared.options import Json

_COLOUR = {"ok": "green", "warning": "yellow", "wrong": "red"}


def doctor(
    *,
    data: Annotated[
        Path | None, typer.Option(help="The data directory.", show_default="~/.fairlead")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="Settings in TOML.", show_default="DATA/fairlead.toml, if there"),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(help="The interpreter that jobs use.", show_default="this one"),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(help="What starts processes, as for `serve`.", show_default="the setting's"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check that this machine and its server are well, and say what to do where they are not.

    Looks at the version, settings, data directory, disk, database, clock, devices, the job
    library in the jobs' interpreter, and the server. With a cluster as engine it asks the nodes
    themselves, by a job of a second on up to 16 of them, whether they see the data directory, have
    our time and reach the server. Exit code 1 if something is wrong.

    Example:  fairlead doctor --python /opt/train/bin/python
    """
    from dataclasses import asdict

    from rich.table import Table
    from rich.text import Text

    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import printable, results
    from fairlead.server.checkup import run_checkup

    found = run_checkup(data, config, python, engine)
    wrong = any(one.level == "wrong" for one in found)
    if as_json:
        print_json({"well": not wrong, "findings": [asdict(one) for one in found]})
    else:
        table = Table("", "", "found", "what to do", title_justify="left")
        for one in found:
            level = Text(one.level, style=_COLOUR[one.level])
            table.add_row(level, one.what, printable(one.found), printable(one.fix))
        results.print(table)
    if wrong:
        raise typer.Exit(1)
