"""``fairlead serve``; its flags are derived from the declaration of the settings."""

import inspect
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin

import typer

from fairlead.server.config.declaration import NAMES, OPTIONS, TYPES, default_text, flag_of

_CONFIG = Annotated[
    Path | None,
    typer.Option(help="Settings in TOML.", show_default="DATA/fairlead.toml, if it exists"),
]


_LOG_UNTIL = Annotated[
    int | None,
    typer.Option(
        "--accept-log-until",
        help="Start although the event log is damaged after this event: later events move to"
        " DATA/quarantine. Only with the number that the error names.",
        min=0,
    ),
]


def serve(**flags: Any) -> None:
    """Run a scheduler for this machine or a Slurm or Ray cluster: processes, leases, checkpoints.

    The server's address, http://127.0.0.1:8642 by default, is also that of its web pages.

    Every setting can also be given in a file (`port = 8642`) or in the environment
    (FAIRLEAD_PORT=8642): flags win, then the environment, then the file; `fairlead config check`
    shows each value and its origin. The first start writes an admin token to DATA/admin.token;
    clients on this machine find it through FAIRLEAD_DATA. SIGTERM and Ctrl-C stop the server; jobs
    keep running, and the next server adopts them. SIGHUP reloads the settings of retention,
    create_tenants and log_level.

    Example:  fairlead serve --emulate v100=2,k80=4 --round 60
    """
    import os

    from fairlead.server.config.database_password import VARIABLE as PASSWORD_VARIABLE
    from fairlead.server.config.loading import load_settings
    from fairlead.server.serve import serve as run

    config, log_until = flags.pop("config"), flags.pop("accept_log_until")
    environment = dict(os.environ)
    os.environ.pop(PASSWORD_VARIABLE, None)  # no process that the server starts inherits it
    run(lambda: load_settings(flags, environment, config).settings, log_until=log_until)


def _parameter(name: str) -> inspect.Parameter:
    """Return the parameter that Typer turns into a setting's flag."""
    setting = OPTIONS[name]
    # The loader refuses wrong words and names the right ones, as it does for files and variables.
    type_ = str if get_origin(TYPES[name]) is Literal else TYPES[name]
    option = typer.Option(
        flag_of(name),
        help=setting.help,
        show_default=default_text(name) or False,
        rich_help_panel=setting.panel,
    )
    return _keyword(name, Annotated[type_ | None, option])


def _keyword(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


# Typer reads the signature.
serve.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        _keyword("config", _CONFIG),
        *map(_parameter, NAMES),
        _keyword("accept_log_until", _LOG_UNTIL),
    ]
)
