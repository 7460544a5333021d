"""``fairlead serve``."""

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.shared.options import MechanismOption, RoundOption

_SERVER, _LOGS, _LIMITS = "Server", "Logs", "Limits"


def serve(
    *,
    config: Annotated[
        Path | None,
        typer.Option(help="Settings in TOML.", show_default="DATA/fairlead.toml, if there"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Database, logs, checkpoints, admin token.", show_default="~/.fairlead"),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            help="Where to listen; elsewhere than here needs TLS.",
            show_default="127.0.0.1",
            rich_help_panel=_SERVER,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            help="Port to listen on.",
            min=1,
            max=65535,
            show_default="8642",
            rich_help_panel=_SERVER,
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="Who should get what: see `fairlead policies`.", show_default="max-min"),
    ] = None,
    mechanism: MechanismOption = None,
    round_s: RoundOption = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="What starts processes: local, slurm[:partition=P,…] or ray[:address=A,…].",
            show_default="local",
        ),
    ] = None,
    emulate: Annotated[
        str | None,
        typer.Option(
            help="Devices to emulate, e.g. v100=2,k80=4: steps take as long as there.",
            show_default="this machine's GPUs",
        ),
    ] = None,
    speeds: Annotated[
        str | None, typer.Option(help="Steps per second of workloads: CSV or Gavel JSON.")
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            help="postgresql+psycopg://…",
            show_default="SQLite in the data",
            rich_help_panel=_SERVER,
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="PEM file.", rich_help_panel=_SERVER)
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="PEM file.", rich_help_panel=_SERVER)
    ] = None,
    standby_s: Annotated[
        float | None,
        typer.Option(
            "--standby",
            help="Wait so many seconds for another scheduler to end.",
            min=0,
            rich_help_panel=_SERVER,
        ),
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option(help="text or json.", show_default="text", rich_help_panel=_LOGS),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(
            help="debug, info, warning or error.", show_default="info", rich_help_panel=_LOGS
        ),
    ] = None,
    requests_per_s: Annotated[
        float | None,
        typer.Option(
            help="Requests a second of one token.", show_default="1000", rich_help_panel=_LIMITS
        ),
    ] = None,
    requests_burst: Annotated[
        int | None,
        typer.Option(
            help="Requests of one token at once.", show_default="10000", rich_help_panel=_LIMITS
        ),
    ] = None,
    renewals_per_s: Annotated[
        float | None,
        typer.Option(
            help="Renewals a second of one lease.", show_default="1000", rich_help_panel=_LIMITS
        ),
    ] = None,
    body_mib: Annotated[
        float | None,
        typer.Option(
            help="MiB that a request may hold.", show_default="4", rich_help_panel=_LIMITS
        ),
    ] = None,
) -> None:
    """Run a scheduler for this machine or a Slurm or Ray cluster: processes, leases, checkpoints.

    Every setting can also stand in a file (`port = 8642`) or in the environment
    (FAIRLEAD_PORT=8642): flags win, then the environment, then the file; `fairlead config check`
    shows what is in force and who says so. On the first start an admin's token is written to
    DATA/admin.token; clients on this machine find it by FAIRLEAD_DATA. SIGTERM and Ctrl-C end
    the server; jobs go on, and the next server takes them over.

    Example:  fairlead serve --emulate v100=2,k80=4 --round 60
    """
    flags = dict(locals())
    import os

    from fairlead.server.config.settings import effective
    from fairlead.server.serve import serve as run

    del flags["config"]
    run(effective(flags, os.environ, config).settings)
