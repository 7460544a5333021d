"""``fairlead config``."""

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.shared.options import Json

app = typer.Typer(help="The server's settings.", no_args_is_help=True)


@app.callback()
def _config() -> None:
    pass


@app.command("check")
def check(
    file: Annotated[
        Path | None,
        typer.Argument(help="Settings in TOML.", show_default="DATA/fairlead.toml, if there"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check the settings that `fairlead serve` would start with, and show who says what.

    Reads the file and the environment (FAIRLEAD_PORT and so on, which win), then tries what
    they name: the policy, the devices, the speeds. The first fault is one line that names the
    field and the fix.

    Example:  fairlead config check /etc/fairlead.toml
    """
    import os

    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import messages, table
    from fairlead.server.config.settings import effective, unread
    from fairlead.server.config.validation import verify

    found = effective({}, os.environ, file)
    verify(found)
    if as_json:
        settings = {one.name: {"value": one.shown, "origin": one.origin} for one in found.listed}
        print_json({"file": found.file and str(found.file), "settings": settings})
        return
    rows = [
        [one.name, "" if one.shown is None else str(one.shown), one.origin] for one in found.listed
    ]
    table("settings in force", ["setting", "value", "said by"], rows, figures=False)
    for variable in unread(os.environ):
        messages.print(f"{variable} is set, but is no setting", markup=False, highlight=False)
