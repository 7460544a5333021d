"""``fairlead limits``: the rate limits of the running server."""

from typing import Annotated, Any

import typer

from fairlead.cli.operate.live_change import origin_of
from fairlead.cli.shared.options import Json

app = typer.Typer(
    help=(
        "Show and change the rate limits of the running server.\n\nExample:  fairlead limits show"
    ),
    no_args_is_help=True,
)


@app.command("show")
def show(as_json: Json = False) -> None:
    """Show the rate limits in force, and the author of the last live change.

    Example:  fairlead limits show
    """
    from fairlead.client import Client

    _print(Client.from_environment().get("/v1/limits"), as_json)


@app.command("set")
def set_limits(
    *,
    requests_per_s: Annotated[
        float | None, typer.Option(help="Requests per second and token, at least 1.", min=1)
    ] = None,
    requests_burst: Annotated[
        int | None, typer.Option(help="Requests of one token in a burst, at least 10.", min=10)
    ] = None,
    renewals_per_s: Annotated[
        float | None, typer.Option(help="Renewals per second and lease, at least 1.", min=1)
    ] = None,
    as_json: Json = False,
) -> None:
    """Change rate limits of the running server at once; for admins.

    Limits without an option stay as they are. The change outlives restarts, until the server is
    started with other settings for these limits.

    Example:  fairlead limits set --requests-per-s 50 --requests-burst 200
    """
    from fairlead.client import Client
    from fairlead.model.errors import UsageError

    wanted = {
        "requests_per_s": requests_per_s,
        "requests_burst": requests_burst,
        "renewals_per_s": renewals_per_s,
    }
    change = {name: value for name, value in wanted.items() if value is not None}
    if not change:
        options = "--requests-per-s, --requests-burst or --renewals-per-s"
        raise UsageError(f"nothing to change: expected {options}")
    _print(Client.from_environment().ask("PUT", "/v1/limits", change), as_json)


def _print(answer: dict[str, Any], as_json: bool) -> None:
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import table

    if as_json:
        print_json(answer)
        return
    rows = [
        ["requests per second and token", f"{answer['requests_per_s']:g}"],
        ["requests of one token in a burst", str(answer["requests_burst"])],
        ["renewals per second and lease", f"{answer['renewals_per_s']:g}"],
        ["set by", origin_of(answer)],
    ]
    table("limits", ["", "value"], rows, figures=False)
