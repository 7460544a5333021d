"""``fairlead tenants``, ``nodes``, ``shares``, ``tokens``, ``login`` of a running scheduler."""

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.shared.options import Json

if TYPE_CHECKING:
    from fairlead.client import Client

tenants = typer.Typer(help="List tenants, or set one's weight, parent and quotas.")
nodes = typer.Typer(help="List nodes; cordon, drain, return and remove them.")
tokens = typer.Typer(help="List tokens; make and revoke them.")

_NAMED = 10
"""jobs that are named of those that a removed node leaves waiting"""
_QUOTA = "ACCELERATOR=DEVICES, or =none to lift it; give it several times."


@tenants.callback(invoke_without_command=True)
def list_tenants(context: typer.Context, as_json: Json = False) -> None:
    """List tenants, or set one's weight, parent and quotas.

    Without a command the tenants are listed.

    Example:  fairlead tenants
    """
    if context.invoked_subcommand is not None:
        return
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import counted, table
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
    table(counted(len(found), "tenant"), heads, rows, figures=False)


@tenants.command("set")
def set_tenant(
    tenant: Annotated[str, typer.Argument(help="Its id.")],
    *,
    weight: Annotated[
        float | None, typer.Option(help="Entitlement among its siblings; 1 unless set.")
    ] = None,
    parent: Annotated[
        str | None, typer.Option(help="The tenant it is part of; '' for none.")
    ] = None,
    inner: Annotated[
        str | None, typer.Option(help="fairness (unless set) or fifo among its own jobs.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option(help="Higher ones come first; 0 unless set.")
    ] = None,
    guarantee: Annotated[
        list[str] | None, typer.Option(help=f"What it has whenever it can use it: {_QUOTA}")
    ] = None,
    limit: Annotated[
        list[str] | None, typer.Option(help=f"What it never holds more of: {_QUOTA}")
    ] = None,
    as_json: Json = False,
) -> None:
    """Add a tenant or change it; what is not given stays as it is.

    Example:  fairlead tenants set vision --weight 2 --guarantee v100=2
    """
    from urllib.parse import quote

    from fairlead.cli.shared.json_output import print_json
    from fairlead.client import Client
    from fairlead.model.errors import UsageError

    if not tenant:
        raise UsageError("the tenant's id is empty; name one, such as vision")
    server = Client.found()
    body: dict[str, Any] = {"id": tenant, "guarantee": {}, "limit": {}}
    body.update(next((one for one in server.get("/v1/tenants") if one["id"] == tenant), {}))
    given = {"weight": weight, "inner": inner, "priority": priority}
    body.update({key: value for key, value in given.items() if value is not None})
    if parent is not None:
        body["parent"] = parent or None
    _apply_quota_option(body["guarantee"], guarantee, "--guarantee")
    _apply_quota_option(body["limit"], limit, "--limit")
    found = server.ask("PUT", f"/v1/tenants/{quote(tenant, safe='')}", body)
    if as_json:
        print_json(found)
    if weight is not None and (hint := _weights_note(server)):
        typer.echo(hint, err=True)


@nodes.callback(invoke_without_command=True)
def list_nodes(context: typer.Context, as_json: Json = False) -> None:
    """List nodes; cordon, drain, return and remove them.

    Without a command the nodes are listed, with what is busy on them.

    Example:  fairlead nodes
    """
    if context.invoked_subcommand is not None:
        return
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import counted, table
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
    table(counted(len(found), "node"), heads, rows, figures=False)


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
def remove_node(
    node: Annotated[str, typer.Argument(help="Its id.")], as_json: Json = False
) -> None:
    """Give a node up for good; drain it first if jobs run there.

    New jobs that need it are refused; those that can run nowhere else are named, and wait. If
    it comes back it has to have another name.

    Example:  fairlead nodes remove v100-0
    """
    from urllib.parse import quote

    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import counted
    from fairlead.client import Client

    found = Client.found().ask("DELETE", f"/v1/nodes/{quote(node, safe='')}")
    if as_json:
        print_json(found)
    elif stranded := found["stranded"]:
        more = len(stranded) - _NAMED
        named = ", ".join(stranded[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        typer.echo(
            f"{counted(len(stranded), 'job')} can run on no other node, and will wait for such"
            f" devices or to be cancelled: {named}",
            err=True,
        )


def shares(as_json: Json = False) -> None:
    """Show what tenants are entitled to, what they hold now and what they have had.

    Example:  fairlead shares
    """
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import table
    from fairlead.client import Client

    server = Client.found()
    found = server.get("/v1/shares")
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
    if hint := _weights_note(server):
        typer.echo(hint)


@tokens.callback(invoke_without_command=True)
def list_tokens(context: typer.Context, as_json: Json = False) -> None:
    """List tokens; make and revoke them.

    Without a command the tokens are listed, without what would let one use them.

    Example:  fairlead tokens
    """
    if context.invoked_subcommand is not None:
        return
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import counted, table
    from fairlead.client import Client

    found = Client.found().get("/v1/tokens")
    if as_json:
        print_json(found)
        return
    rows = [
        [
            one["id"],
            one["name"],
            one["role"],
            one["tenant"] or "",
            ", ".join(one["sees"]),
            _expiry(one["expires_at"]),
        ]
        for one in found
    ]
    heads = ["id", "name", "role", "tenant", "sees also", "expires"]
    table(counted(len(found), "token"), heads, rows, figures=False)


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
    from fairlead.cli.shared.json_output import print_json
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
    from urllib.parse import quote

    from fairlead.client import Client

    Client.found().ask("DELETE", f"/v1/tokens/{quote(token, safe='')}")


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

    from fairlead.cli.shared.json_output import print_json
    from fairlead.client import Client

    found = Client.found().post(f"/v1/nodes/{quote(node, safe='')}/{what}")
    if as_json:
        print_json(found)
    else:
        typer.echo(f"{node}: {_standing(found)}")


def _weights_note(server: "Client") -> str:
    """Return a line on tenants' weights where they do not count, else nothing."""
    about = server.get("/v1/about")
    if about.get("divides_among_tenants", True):
        return ""
    return (
        f"{about['policy']} divides among jobs, whatever their tenants' weights; hierarchical or"
        " tenant-max-min divide among tenants"
    )


def _standing(node: dict[str, Any]) -> str:
    if node["drained"]:
        return "drained"
    return "down" if not node["up"] else "cordoned" if node["cordoned"] else "up"


def _apply_quota_option(quota: dict[str, float], given: list[str] | None, option: str) -> None:
    """Enter what an option says into a tenant's quota."""
    from fairlead.model.errors import UsageError

    for pair in given or []:
        name, _, count = pair.partition("=")
        try:
            if count == "none":
                quota.pop(name, None)
            else:
                quota[name] = float(count)
        except ValueError:
            raise UsageError(f"{option} {pair!r} is not ACCELERATOR=DEVICES") from None


def _expiry(at: float | None) -> str:
    if at is None:
        return "never"
    told = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    return f"{told}, has expired" if at < time.time() else told


def _quota_text(quota: dict[str, float]) -> str:
    return ", ".join(f"{name}={count:g}" for name, count in quota.items())
