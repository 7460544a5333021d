"""``fairlead tenants``, ``nodes``, ``shares``, ``tokens``, ``login`` of a running scheduler."""

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli.options import Json

tenants = typer.Typer(help="List tenants, or set one's weight, parent and quotas.")
nodes = typer.Typer(help="List nodes; cordon, drain, return and remove them.")
tokens = typer.Typer(help="Make, list and revoke tokens.")

Quota = Annotated[
    list[str] | None, typer.Option(help="ACCELERATOR=DEVICES; give it several times.")
]


@tenants.callback(invoke_without_command=True)
def list_tenants(context: typer.Context, as_json: Json = False) -> None:
    """List tenants."""
    if context.invoked_subcommand is not None:
        return
    from fairlead.cli.output import print_json, table
    from fairlead.client import Client

    found = Client.found().get("/v1/tenants")
    if as_json:
        print_json(found)
        return
    rows = [
        [
            one["id"],
            f"{one['weight']:g}",
            one["parent"] or "",
            one["inner"],
            str(one["priority"]),
            _quota_text(one["guarantee"]),
            _quota_text(one["limit"]),
        ]
        for one in found
    ]
    heads = ["tenant", "weight", "parent", "inner", "priority", "guarantee", "limit"]
    table(f"{len(found)} tenants", heads, rows, figures=False)


@tenants.command("set")
def set_tenant(
    tenant: Annotated[str, typer.Argument(help="Its id.")],
    *,
    weight: Annotated[float, typer.Option(help="Entitlement among its siblings.")] = 1.0,
    parent: Annotated[str | None, typer.Option(help="The tenant it is part of.")] = None,
    inner: Annotated[str, typer.Option(help="fairness or fifo among its own jobs.")] = "fairness",
    priority: Annotated[int, typer.Option(help="Higher ones come first.")] = 0,
    guarantee: Quota = None,
    limit: Quota = None,
    as_json: Json = False,
) -> None:
    """Add a tenant or change it.

    Example:  fairlead tenants set vision --weight 2 --guarantee v100=2
    """
    from fairlead.cli.output import print_json
    from fairlead.client import Client

    body = {
        "id": tenant,
        "weight": weight,
        "parent": parent,
        "inner": inner,
        "priority": priority,
        "guarantee": _quota(guarantee, "--guarantee"),
        "limit": _quota(limit, "--limit"),
    }
    found = Client.found().ask("PUT", f"/v1/tenants/{tenant}", body)
    if as_json:
        print_json(found)


@nodes.callback(invoke_without_command=True)
def list_nodes(context: typer.Context, as_json: Json = False) -> None:
    """List nodes."""
    if context.invoked_subcommand is not None:
        return
    from fairlead.cli.output import print_json, table
    from fairlead.client import Client

    found = Client.found().get("/v1/nodes")
    if as_json:
        print_json(found)
        return
    rows = [
        [
            one["id"],
            _standing(one),
            _quota_text(one["devices"]),
            f"{one['busy']}/{sum(one['devices'].values())}",
            str(one["taken"] or ""),
        ]
        for one in found
    ]
    heads = ["node", "state", "devices", "busy", "held by others"]
    table(f"{len(found)} nodes", heads, rows, figures=False)


@nodes.command("cordon")
def cordon(node: Annotated[str, typer.Argument(help="Its id.")], as_json: Json = False) -> None:
    """Start nothing new on a node; what runs there goes on until it ends.

    Example:  fairlead nodes cordon v100-0
    """
    _turn(node, "cordon", as_json)


@nodes.command("drain")
def drain(node: Annotated[str, typer.Argument(help="Its id.")], as_json: Json = False) -> None:
    """Have all jobs checkpoint and leave a node, and start none there.

    Example:  fairlead nodes drain v100-0
    """
    _turn(node, "drain", as_json)


@nodes.command("return")
def put_back(node: Annotated[str, typer.Argument(help="Its id.")], as_json: Json = False) -> None:
    """Use a drained or cordoned node again.

    Example:  fairlead nodes return v100-0
    """
    _turn(node, "return", as_json)


@nodes.command("remove")
def remove_node(node: Annotated[str, typer.Argument(help="Its id.")]) -> None:
    """Give a node up for good; drain it first if jobs run there.

    Nobody waits for it any more. If it comes back it has to have another name.

    Example:  fairlead nodes remove v100-0
    """
    from urllib.parse import quote

    from fairlead.client import Client

    Client.found().ask("DELETE", f"/v1/nodes/{quote(node, safe='')}")


def shares(as_json: Json = False) -> None:
    """Show what tenants are entitled to, what they hold now and what they have had.

    Example:  fairlead shares
    """
    from fairlead.cli.output import print_json, table
    from fairlead.client import Client

    found = Client.found().get("/v1/shares")
    if as_json:
        print_json(found)
        return
    rows = [
        [
            one["tenant"],
            f"{one['weight']:g}",
            f"{one['entitled']:.1%}",
            f"{one['received']:.1%}",
            f"{one['device_hours']:.2f}",
            str(one["jobs"]),
        ]
        for one in found
    ]
    heads = ["tenant", "weight", "entitled", "holds now", "device hours", "jobs"]
    table("shares", heads, rows)


@tokens.callback(invoke_without_command=True)
def list_tokens(context: typer.Context, as_json: Json = False) -> None:
    """List tokens."""
    if context.invoked_subcommand is not None:
        return
    from fairlead.cli.output import print_json, table
    from fairlead.client import Client

    found = Client.found().get("/v1/tokens")
    if as_json:
        print_json(found)
        return
    rows = [[one["id"], one["name"], one["role"], one["tenant"] or ""] for one in found]
    table(f"{len(found)} tokens", ["id", "name", "role", "tenant"], rows, figures=False)


@tokens.command("make")
def make_token(
    name: Annotated[str, typer.Argument(help="Whose it is.")],
    *,
    role: Annotated[str, typer.Option(help="admin, tenant or viewer.")] = "tenant",
    tenant: Annotated[str | None, typer.Option(help="For the role tenant.")] = None,
    sees: Annotated[
        list[str] | None,
        typer.Option(help="Another tenant whose jobs are shown to it; give it several times."),
    ] = None,
    lasts: Annotated[float | None, typer.Option(help="Seconds until it expires.")] = None,
    as_json: Json = False,
) -> None:
    """Make a token and print it, this once.

    Example:  fairlead tokens make alice --tenant vision
    """
    from fairlead.cli.output import print_json
    from fairlead.client import Client

    body = {"name": name, "role": role, "tenant": tenant, "sees": sees or [], "lasts_s": lasts}
    found = Client.found().post("/v1/tokens", body)
    if as_json:
        print_json(found)
    else:
        typer.echo(found["token"])


@tokens.command("revoke")
def revoke_token(token: Annotated[str, typer.Argument(help="Its id, not the token.")]) -> None:
    """Make a token useless, at once.

    Example:  fairlead tokens revoke 3f9a0c12be77
    """
    from fairlead.client import Client

    Client.found().ask("DELETE", f"/v1/tokens/{token}")


def login(
    url: Annotated[str, typer.Argument(help="The server's address.")],
    token: Annotated[
        str, typer.Option(prompt=True, hide_input=True, help="Asked for when not given.")
    ],
) -> None:
    """Remember a server and a token for this user, after trying them.

    Example:  fairlead login https://cluster.example.org:8642
    """
    from fairlead.client import Client

    Client(url, token).get("/v1/jobs", limit=1)
    data = Path(os.environ.get("FAIRLEAD_DATA", "~/.fairlead")).expanduser()
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = data / "login.json"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump({"url": url, "token": token}, file)


def _turn(node: str, what: str, as_json: bool) -> None:
    from urllib.parse import quote

    from fairlead.cli.output import print_json
    from fairlead.client import Client

    found = Client.found().post(f"/v1/nodes/{quote(node, safe='')}/{what}")
    if as_json:
        print_json(found)
    else:
        typer.echo(f"{node}: {_standing(found)}")


def _standing(node: dict[str, Any]) -> str:
    if node["drained"]:
        return "drained"
    return "down" if not node["up"] else "cordoned" if node["cordoned"] else "up"


def _quota(given: list[str] | None, option: str) -> dict[str, float]:
    from fairlead.model.errors import UsageError

    found = {}
    for pair in given or []:
        name, _, count = pair.partition("=")
        try:
            found[name] = float(count)
        except ValueError:
            raise UsageError(f"{option} {pair!r} is not ACCELERATOR=DEVICES") from None
    return found


def _quota_text(quota: dict[str, float]) -> str:
    return ", ".join(f"{name}={count:g}" for name, count in quota.items())
