"""``fairlead serve``."""

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.options import MechanismOption, PolicyOption, RoundOption


def serve(
    *,
    data: Annotated[
        Path,
        typer.Option(envvar="FAIRLEAD_DATA", help="Database, logs, checkpoints, admin token."),
    ] = Path("~/.fairlead"),
    host: Annotated[str, typer.Option(help="Where to listen; elsewhere than here needs TLS.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8642,
    policy: PolicyOption = "max-min",
    mechanism: MechanismOption = None,
    round_s: RoundOption = None,
    emulate: Annotated[
        str | None,
        typer.Option(help="Devices to emulate, e.g. v100=2,k80=4: steps take as long as there."),
    ] = None,
    speeds: Annotated[
        str | None, typer.Option(help="Steps per second of workloads: CSV or Gavel JSON.")
    ] = None,
    database: Annotated[
        str | None, typer.Option(help="postgresql+psycopg://…; default: SQLite in the data.")
    ] = None,
    tls_certificate: Annotated[Path | None, typer.Option(help="PEM file.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file.")] = None,
    standby: Annotated[
        float, typer.Option(help="Wait so many seconds for another scheduler to end.", min=0)
    ] = 0.0,
) -> None:
    """Run a scheduler on this machine: real processes, leases, checkpoints.

    On the first start an admin's token is written to DATA/admin.token; clients on this machine
    find it by FAIRLEAD_DATA.

    Example:  fairlead serve --emulate v100=2,k80=4 --round 60
    """
    from fairlead.server.serve import ServeSettings
    from fairlead.server.serve import serve as run

    run(
        ServeSettings(
            data=data.expanduser().absolute(),
            host=host,
            port=port,
            policy=policy,
            mechanism=mechanism,
            round_s=round_s,
            emulate=emulate,
            speeds=speeds,
            database=database,
            tls_certificate=tls_certificate,
            tls_key=tls_key,
            standby_s=standby,
        )
    )
