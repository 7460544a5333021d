"""``fairlead config``."""

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.shared.options import Json

app = typer.Typer(
    help="Check the settings of the server.\n\nExample:  fairlead config check",
    no_args_is_help=True,
)


@app.callback()
def _config() -> None:
    pass


@app.command("check")
def check(
    file: Annotated[
        Path | None,
        typer.Argument(help="Settings in TOML.", show_default="DATA/fairlead.toml, if it exists"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check the settings that `fairlead serve` would start with, and show the origin of each.

    Reads the file and the environment (FAIRLEAD_PORT and so on, which win), then checks that the
    policy, devices and speeds exist. Reports the first error in one line: place, field, expected
    value.

    Example:  fairlead config check /etc/fairlead.toml
    """
    import os

    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import messages, table
    from fairlead.server.config.loading import load_settings, unknown_variables
    from fairlead.server.config.validation import verify

    effective = load_settings({}, os.environ, file)
    verify(effective)
    values = effective.values
    if as_json:
        settings = {value.name: {"value": value.shown, "origin": value.origin} for value in values}
        print_json({"file": effective.file and str(effective.file), "settings": settings})
        return
    rows = [
        [value.name, "" if value.shown is None else str(value.shown), value.origin]
        for value in values
    ]
    table("effective settings", ["setting", "value", "origin"], rows, figures=False)
    for variable in unknown_variables(os.environ):
        messages.print(f"{variable}: not a setting: ignored", markup=False, highlight=False)
