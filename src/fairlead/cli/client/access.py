"""``fairlead tokens`` and ``login`` of a running scheduler."""

import json
import os
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli.shared.options import Json

tokens = typer.Typer()

_SCOPES = "jobs:read, jobs:write, cluster:read, cluster:write, access:read or access:write"


@tokens.callback(invoke_without_command=True)
def list_tokens(context: typer.Context, as_json: Json = False) -> None:
    """List, create, rotate and revoke tokens.

    Without a subcommand, list the tokens, without their secrets.

    Example:  fairlead tokens
    """
    if context.invoked_subcommand is not None:
        return
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import pluralise, table
    from fairlead.client import Client

    answer = Client.from_environment().get("/v1/tokens")
    if as_json:
        print_json(answer)
        return
    rows = [
        [
            row["id"],
            row["name"],
            row["role"],
            row["tenant"] or "",
            ", ".join(row["sees"]),
            ", ".join(row["scopes"]) or "all of its role",
            _moment(row["created_at"] or None, "first start"),
            _expiry(row["expires_at"]),
            _moment(row["last_used_at"], "never"),
        ]
        for row in answer
    ]
    heads = ["id", "name", "role", "tenant", "sees also", "scopes", "created", "expires"]
    table(pluralise(len(answer), "token"), [*heads, "last used"], rows, figures=False)


@tokens.command("make")
def make_token(
    name: Annotated[str, typer.Argument(help="Name of its owner.")],
    *,
    role: Annotated[str, typer.Option(help="Role: admin, tenant or viewer.")] = "tenant",
    tenant: Annotated[
        str | None, typer.Option(help="Tenant of a token with the role tenant.")
    ] = None,
    sees: Annotated[
        list[str] | None,
        typer.Option(help="Another tenant whose jobs it may see; repeatable."),
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(help=f"Part of the API that it may use: {_SCOPES}; repeatable."),
    ] = None,
    lasts: Annotated[
        float | None, typer.Option(help="Seconds until the token expires.", show_default="never")
    ] = None,
    as_json: Json = False,
) -> None:
    """Create a token and print it; it cannot be shown again.

    Without a scope it may do all that its role permits.

    Example:  fairlead tokens make alice --tenant vision
    """
    from fairlead.client import Client

    body = {"name": name, "role": role, "tenant": tenant, "sees": sees or [], "lasts_s": lasts}
    _show_token(
        Client.from_environment().post("/v1/tokens", {**body, "scopes": scope or []}), as_json
    )


@tokens.command("rotate")
def rotate_token(
    token: Annotated[str, typer.Argument(help="Id of the token, not the token itself.")],
    *,
    overlap: Annotated[
        float, typer.Option(help="Seconds for which the old secret stays valid.")
    ] = 0.0,
    as_json: Json = False,
) -> None:
    """Give a token a new secret and print it; its id, role and scopes stay.

    Example:  fairlead tokens rotate 3f9a0c12be77 --overlap 3600
    """
    from fairlead.client import Client
    from fairlead.server_address import token_path

    path = token_path(token, "rotate")
    _show_token(Client.from_environment().post(path, {"overlap_s": overlap}), as_json)


@tokens.command("revoke")
def revoke_token(
    token: Annotated[str, typer.Argument(help="Id of the token, not the token itself.")],
) -> None:
    """Revoke a token at once.

    Example:  fairlead tokens revoke 3f9a0c12be77
    """
    from fairlead.client import Client
    from fairlead.server_address import token_path

    path = token_path(token)
    Client.from_environment().ask("DELETE", path)


def login(
    url: Annotated[str, typer.Argument(help="Address of the server.")],
    token: Annotated[
        str | None, typer.Option(help="Token; prompted for if missing.", show_default=False)
    ] = None,
    oidc: Annotated[
        bool, typer.Option("--oidc", help="Log in at the server's OpenID Connect provider.")
    ] = False,
) -> None:
    """Check a server and a token, and save both for this user.

    With --oidc the browser opens the provider's page. The login lasts as long as the provider's
    token; log in again when it has expired.

    Example:  fairlead login https://cluster.example.org:8642
    """
    from fairlead.atomic_file import replace_text
    from fairlead.client import Client

    if oidc:
        from fairlead.cli.client.oidc_login import log_in

        with closing(Client(url, "")) as server:
            provider = server.get("/v1/oidc")
        token = log_in(provider)
    elif token is None:
        token = str(typer.prompt("Token", hide_input=sys.stdin.isatty(), err=True))
    with closing(Client(url, token)) as server:
        server.get("/v1/jobs", limit=1)
    data = Path(os.environ.get("FAIRLEAD_DATA", "~/.fairlead")).expanduser()
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = data / "login.json"
    replace_text(path, json.dumps({"url": url, "token": token}), mode=0o600)


def _show_token(answer: dict[str, Any], as_json: bool) -> None:
    from fairlead.cli.shared.json_output import print_json

    if as_json:
        print_json(answer)
    else:
        typer.echo(answer["token"])


def _moment(at: float | None, missing: str) -> str:
    from fairlead.cli.shared.output import local_time

    return missing if at is None else local_time(at)


def _expiry(at: float | None) -> str:
    text = _moment(at, "never")
    return f"{text} (expired)" if at is not None and at < time.time() else text
