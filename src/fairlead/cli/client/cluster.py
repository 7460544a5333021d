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

tenants = typer.Typer(help="List tenants; set weights, parents and quotas.")
nodes = typer.Typer(help="List nodes; cordon, drain, return and remove them.")
tokens = typer.Typer(help="List, create and revoke tokens.")

_MAX_NAMED = 10
"""maximum number of stranded jobs that are listed when a node is removed"""
_QUOTA = "ACCELERATOR=DEVICES, or =none to lift it; repeatable."


@tenants.callback(invoke_without_command=True)
def list_tenants(context: typer.Context, as_json: Json = False) -> None:
    """List tenants; set weights, parents and quotas.

    Without a subcommand, list the tenants.

    Example:  fairlead tenants
    """
    if context.invoked_subcommand is not None:
        return
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import pluralise, table
    from fairlead.client import Client

    answer = Client.from_environment().get("/v1/tenants")
    if as_json:
        print_json(answer)
        return
    rows = [
        [
            row["id"],
            f"{row['weight']:g}",
            row["parent"] or "",
            row["inner"],
            str(row["priority"]),
            _quota_text(row["guarantee"]),
            _quota_text(row["limit"]),
        ]
        for row in answer
    ]
    heads = ["tenant", "weight", "parent", "inner", "priority", "guarantee", "limit"]
    table(pluralise(len(answer), "tenant"), heads, rows, figures=False)


@tenants.command("set")
def set_tenant(
    tenant: Annotated[str, typer.Argument(help="Tenant id.")],
    *,
    weight: Annotated[
        float | None, typer.Option(help="Entitlement relative to its siblings; initially 1.")
    ] = None,
    parent: Annotated[str | None, typer.Option(help="Parent tenant; '' for none.")] = None,
    inner: Annotated[
        str | None, typer.Option(help="Order of its own jobs: fairness (initially) or fifo.")
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option(help="Tenants with a higher priority are served first; initially 0."),
    ] = None,
    guarantee: Annotated[
        list[str] | None, typer.Option(help=f"Devices guaranteed on demand: {_QUOTA}")
    ] = None,
    limit: Annotated[list[str] | None, typer.Option(help=f"Maximum devices: {_QUOTA}")] = None,
    as_json: Json = False,
) -> None:
    """Add or change a tenant; settings without an option stay as they are.

    Example:  fairlead tenants set vision --weight 2 --guarantee v100=2
    """
    from urllib.parse import quote

    from fairlead.cli.shared.json_output import print_json
    from fairlead.client import Client
    from fairlead.model.errors import UsageError

    if not tenant:
        raise UsageError("tenant: empty: expected an id such as vision")
    server = Client.from_environment()
    body: dict[str, Any] = {"id": tenant, "guarantee": {}, "limit": {}}
    body.update(next((row for row in server.get("/v1/tenants") if row["id"] == tenant), {}))
    changes = {"weight": weight, "inner": inner, "priority": priority}
    body.update({key: value for key, value in changes.items() if value is not None})
    if parent is not None:
        body["parent"] = parent or None
    _apply_quota_option(body["guarantee"], guarantee, "--guarantee")
    _apply_quota_option(body["limit"], limit, "--limit")
    answer = server.ask("PUT", f"/v1/tenants/{quote(tenant, safe='')}", body)
    if as_json:
        print_json(answer)
    if weight is not None and (hint := _weights_note(server)):
        typer.echo(hint, err=True)


@nodes.callback(invoke_without_command=True)
def list_nodes(context: typer.Context, as_json: Json = False) -> None:
    """List nodes; cordon, drain, return and remove them.

    Without a subcommand, list the nodes and their busy devices.

    Example:  fairlead nodes
    """
    if context.invoked_subcommand is not None:
        return
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import pluralise, table
    from fairlead.client import Client

    answer = Client.from_environment().get("/v1/nodes")
    if as_json:
        print_json(answer)
        return
    rows = [
        [
            row["id"],
            _node_state(row),
            _quota_text(row["devices"]),
            f"{row['busy']}/{sum(row['devices'].values())}",
            str(row["taken"] or ""),
        ]
        for row in answer
    ]
    heads = ["node", "state", "devices", "busy", "taken"]
    table(pluralise(len(answer), "node"), heads, rows, figures=False)


@nodes.command("cordon")
def cordon(node: Annotated[str, typer.Argument(help="Node id.")], as_json: Json = False) -> None:
    """Start nothing new on a node; its running leases continue.

    Example:  fairlead nodes cordon v100-0
    """
    _change_node(node, "cordon", as_json)


@nodes.command("drain")
def drain(node: Annotated[str, typer.Argument(help="Node id.")], as_json: Json = False) -> None:
    """Preempt all jobs on a node and start none there; they checkpoint first.

    Example:  fairlead nodes drain v100-0
    """
    _change_node(node, "drain", as_json)


@nodes.command("return")
def return_node(
    node: Annotated[str, typer.Argument(help="Node id.")], as_json: Json = False
) -> None:
    """Use a drained or cordoned node again.

    Example:  fairlead nodes return v100-0
    """
    _change_node(node, "return", as_json)


@nodes.command("remove")
def remove_node(
    node: Annotated[str, typer.Argument(help="Node id.")], as_json: Json = False
) -> None:
    """Remove a node permanently; drain it first if jobs run there.

    New jobs that need it are rejected. Queued jobs that can run nowhere else are listed; they
    wait. A removed node can come back only under another name.

    Example:  fairlead nodes remove v100-0
    """
    from urllib.parse import quote

    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import pluralise
    from fairlead.client import Client

    answer = Client.from_environment().ask("DELETE", f"/v1/nodes/{quote(node, safe='')}")
    if as_json:
        print_json(answer)
    elif stranded := answer["stranded"]:
        more = len(stranded) - _MAX_NAMED
        named = ", ".join(stranded[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
        typer.echo(
            f"{pluralise(len(stranded), 'job')} can run on no other node; add such devices or"
            f" cancel: {named}",
            err=True,
        )


def shares(as_json: Json = False) -> None:
    """Show tenants' entitlements, the devices they hold now, and their usage so far.

    Example:  fairlead shares
    """
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import table
    from fairlead.client import Client

    server = Client.from_environment()
    answer = server.get("/v1/shares")
    if as_json:
        print_json(answer)
        return
    rows = [
        [
            row["tenant"],
            f"{row['weight']:g}",
            f"{row['entitled']:.1%}",
            f"{row['received']:.1%}",
            f"{row['device_hours']:.2f}",
            str(row["jobs"]),
        ]
        for row in answer
    ]
    heads = ["tenant", "weight", "entitled", "holds now", "device hours", "jobs"]
    table("shares", heads, rows)
    if hint := _weights_note(server):
        typer.echo(hint)


@tokens.callback(invoke_without_command=True)
def list_tokens(context: typer.Context, as_json: Json = False) -> None:
    """List, create and revoke tokens.

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
            _expiry(row["expires_at"]),
        ]
        for row in answer
    ]
    heads = ["id", "name", "role", "tenant", "sees also", "expires"]
    table(pluralise(len(answer), "token"), heads, rows, figures=False)


@tokens.command("make")
def make_token(
    name: Annotated[str, typer.Argument(help="Name of its owner.")],
    *,
    role: Annotated[str, typer.Option(help="admin, tenant or viewer.")] = "tenant",
    tenant: Annotated[
        str | None, typer.Option(help="Tenant of a token with the role tenant.")
    ] = None,
    sees: Annotated[
        list[str] | None,
        typer.Option(help="Another tenant whose jobs it may see; repeatable."),
    ] = None,
    lasts: Annotated[float | None, typer.Option(help="Seconds until the token expires.")] = None,
    as_json: Json = False,
) -> None:
    """Create a token and print it; it cannot be shown again.

    Example:  fairlead tokens make alice --tenant vision
    """
    from fairlead.cli.shared.json_output import print_json
    from fairlead.client import Client

    body = {"name": name, "role": role, "tenant": tenant, "sees": sees or [], "lasts_s": lasts}
    answer = Client.from_environment().post("/v1/tokens", body)
    if as_json:
        print_json(answer)
    else:
        typer.echo(answer["token"])


@tokens.command("revoke")
def revoke_token(
    token: Annotated[str, typer.Argument(help="Id of the token, not the token itself.")],
) -> None:
    """Revoke a token at once.

    Example:  fairlead tokens revoke 3f9a0c12be77
    """
    from urllib.parse import quote

    from fairlead.client import Client

    Client.from_environment().ask("DELETE", f"/v1/tokens/{quote(token, safe='')}")


def login(
    url: Annotated[str, typer.Argument(help="Address of the server.")],
    token: Annotated[
        str, typer.Option(prompt=True, hide_input=True, help="Token; prompted for if missing.")
    ],
) -> None:
    """Check a server and a token, and save both for this user.

    Example:  fairlead login https://cluster.example.org:8642
    """
    from fairlead.atomic_file import replace_text
    from fairlead.client import Client

    Client(url, token).get("/v1/jobs", limit=1)
    data = Path(os.environ.get("FAIRLEAD_DATA", "~/.fairlead")).expanduser()
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = data / "login.json"
    replace_text(path, json.dumps({"url": url, "token": token}), mode=0o600)


def _change_node(node: str, action: str, as_json: bool) -> None:
    from urllib.parse import quote

    from fairlead.cli.shared.json_output import print_json
    from fairlead.client import Client

    answer = Client.from_environment().post(f"/v1/nodes/{quote(node, safe='')}/{action}")
    if as_json:
        print_json(answer)
    else:
        typer.echo(f"{node}: {_node_state(answer)}")


def _weights_note(server: "Client") -> str:
    """Return a note if the policy ignores tenants' weights, otherwise an empty text."""
    about = server.get("/v1/about")
    if about.get("divides_among_tenants", True):
        return ""
    return (
        f"{about['policy']} ignores tenants' weights; hierarchical and tenant-max-min divide the"
        " cluster among tenants"
    )


def _node_state(node: dict[str, Any]) -> str:
    if node["drained"]:
        return "drained"
    return "down" if not node["up"] else "cordoned" if node["cordoned"] else "up"


def _apply_quota_option(quota: dict[str, float], pairs: list[str] | None, option: str) -> None:
    """Update a tenant's quota with the values of an option."""
    from fairlead.model.errors import UsageError

    for pair in pairs or []:
        name, _, count = pair.partition("=")
        try:
            if count == "none":
                quota.pop(name, None)
            else:
                quota[name] = float(count)
        except ValueError:
            raise UsageError(f"{option}: {pair!r}: expected ACCELERATOR=DEVICES") from None


def _expiry(at: float | None) -> str:
    if at is None:
        return "never"
    text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    return f"{text} (expired)" if at < time.time() else text


def _quota_text(quota: dict[str, float]) -> str:
    return ", ".join(f"{name}={count:g}" for name, count in quota.items())
