"""``fairlead doctor``."""

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.shared.options import Json

_COLOUR = {"ok": "green", "warning": "yellow", "wrong": "red"}


def doctor(
    *,
    data: Annotated[
        Path | None, typer.Option(help="Data directory.", show_default="~/.fairlead")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="Settings in TOML.", show_default="DATA/fairlead.toml, if it exists"),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(help="Interpreter of the jobs.", show_default="this one"),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="Engine that starts processes, as for `serve`.", show_default="the setting's"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check this machine and its server, and show a fix for each problem.

    Checks the version, settings, data directory, disk, database, clock, devices, the job library
    in the jobs' interpreter, and the server. On a cluster it also runs a job of one second on up
    to 16 nodes, which checks their data directory, clock and connection to the server. Exits with
    code 1 if there is a problem.

    Example:  fairlead doctor --python /opt/train/bin/python
    """
    from dataclasses import asdict

    from rich.text import Text

    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import table
    from fairlead.server.checkup import run_checkup

    findings = run_checkup(data, config, python, engine)
    wrong = any(finding.level == "wrong" for finding in findings)
    if as_json:
        print_json({"well": not wrong, "findings": [asdict(finding) for finding in findings]})
    else:
        rows: list[list[str | Text]] = [
            [Text(each.level, style=_COLOUR[each.level]), each.what, each.found, each.fix]
            for each in findings
        ]
        table("", ["", "", "finding", "fix"], rows, figures=False)
    if wrong:
        raise typer.Exit(1)
