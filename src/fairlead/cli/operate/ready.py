"""``fairlead ready``."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:  # loads the HTTP library
    from fairlead.client import Client

_PAUSE_S = 0.2


def ready(
    timeout_s: Annotated[
        float, typer.Option("--timeout", help="Seconds to wait; 0: ask once.", min=0, max=1e6)
    ] = 60.0,
) -> None:
    """Wait until the server answers, and print its address.

    For scripts that start a server and use it. Fails if the server does not schedule jobs in time.

    Example:  fairlead ready --timeout 120
    """
    from fairlead.cli.shared.output import messages
    from fairlead.client import Client, ServerError, UntrustedCertificateError

    until = time.monotonic() + timeout_s
    waiting = False
    while True:
        try:
            server = Client.from_environment()
            _require_ready(server)
            break
        except UntrustedCertificateError:
            raise
        except ServerError:
            if time.monotonic() >= until:
                raise
            if not waiting:
                messages.print("waiting for the server", highlight=False)
            waiting = True
            time.sleep(_PAUSE_S)
    typer.echo(server.url)


def _require_ready(server: "Client") -> None:
    """Raise ServerError unless the server answers that it schedules jobs."""
    from fairlead.client import ServerError

    status, _, text = server.raw("GET", "/readyz")
    if status != 200:
        reason = text.decode("utf-8", "replace").strip()
        raise ServerError(f"{server.url} is not ready: {reason}: see the server's log")
