"""``fairlead tenants`` and ``shares`` of a running scheduler."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.shared.confirmation import confirm
from fairlead.cli.shared.options import Json

if TYPE_CHECKING:
    from fairlead.client import Client

tenants = typer.Typer()

_QUOTA = "ACCELERATOR=DEVICES, or =none to lift it; repeatable."
_CAP = "; 'none' to lift it. Admins may exceed it."


@tenants.callback(invoke_without_command=True)
def list_tenants(context: typer.Context, as_json: Json = False) -> None:
    """List tenants; set weights, parents, quotas and caps; remove them.

    Without a subcommand, list the tenants.

    Example:  fairlead tenants
    """
    if context.invoked_subcommand is not None:
        return
    from fairlead.cli.shared.json_output import print_json
    from fairlead.client import Client

    answer = Client.from_environment().get("/v1/tenants")
    if as_json:
        print_json(answer)
        return
    _print_tenants(answer)


def _print_tenants(listed: list[dict[str, Any]]) -> None:
    from fairlead.cli.shared.output import counts_text, pluralise, table

    rows = [
        [
            row["id"],
            f"{row['weight']:g}",
            row["parent"] or "",
            row["inner"],
            str(row["priority"]),
            counts_text(row["guarantee"]),
            counts_text(row["limit"]),
            _caps_text(row),
        ]
        for row in listed
    ]
    heads = ["tenant", "weight", "parent", "inner", "priority", "guarantee", "limit", "caps"]
    table(pluralise(len(rows), "tenant"), heads, rows, figures=False)


@tenants.command("set")
def set_tenant(
    tenant: Annotated[str, typer.Argument(help="Tenant id.")],
    *,
    weight: Annotated[
        float | None, typer.Option(help="Entitlement relative to its siblings; initially 1.")
    ] = None,
    parent: Annotated[str | None, typer.Option(help="Parent tenant; none: no parent.")] = None,
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
    max_priority: Annotated[
        str | None, typer.Option(help=f"Highest priority of its jobs{_CAP}")
    ] = None,
    max_weight: Annotated[
        str | None, typer.Option(help=f"Highest weight of its jobs{_CAP}")
    ] = None,
    max_jobs: Annotated[
        str | None, typer.Option(help=f"Maximum number of running and waiting jobs{_CAP}")
    ] = None,
    as_json: Json = False,
) -> None:
    """Add or change a tenant; settings without an option stay as they are.

    Example:  fairlead tenants set vision --weight 2 --guarantee v100=2
    """
    from fairlead.cli.shared.json_output import print_json
    from fairlead.client import Client
    from fairlead.model.errors import UsageError
    from fairlead.server_address import tenant_path

    if not tenant:
        raise UsageError("tenant: empty: expected an id such as vision")
    server = Client.from_environment()
    body: dict[str, Any] = {"id": tenant, "guarantee": {}, "limit": {}}
    body.update(next((row for row in server.get("/v1/tenants") if row["id"] == tenant), {}))
    changes = {"weight": weight, "inner": inner, "priority": priority}
    body.update({key: value for key, value in changes.items() if value is not None})
    if parent is not None:
        body["parent"] = None if parent in {"", "none"} else parent
    _apply_quota_option(body["guarantee"], guarantee, "--guarantee")
    _apply_quota_option(body["limit"], limit, "--limit")
    _apply_cap_option(body, "max_priority", max_priority)
    _apply_cap_option(body, "max_weight", max_weight)
    _apply_cap_option(body, "max_jobs", max_jobs)
    answer = server.ask("PUT", tenant_path(tenant), body)
    if as_json:
        print_json(answer)
    else:
        _print_tenants([answer])
    if weight is not None and (hint := _weights_note(server)):
        typer.echo(hint, err=True)


@tenants.command("remove")
def remove_tenant(
    tenant: Annotated[str, typer.Argument(help="Tenant id.")],
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove a tenant and its settings; refused while it has jobs that have not ended.

    Its tokens stay valid, and a job submitted with one of them adds the tenant again: see
    `fairlead tokens revoke`.

    Example:  fairlead tenants remove vision --yes
    """
    from fairlead.client import Client
    from fairlead.server_address import tenant_path

    path = tenant_path(tenant)
    confirm(f"remove tenant {tenant}?", yes=yes)
    Client.from_environment().ask("DELETE", path)


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


def _weights_note(server: "Client") -> str:
    """Return a note if the policy ignores tenants' weights, otherwise an empty text."""
    about = server.get("/v1/about")
    if about.get("divides_among_tenants", True):
        return ""
    return (
        f"{about['policy']} ignores tenants' weights; hierarchical and tenant-max-min divide the"
        " cluster among tenants"
    )


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


def _apply_cap_option(body: dict[str, Any], name: str, value: str | None) -> None:
    """Update one cap of a tenant with the value of an option."""
    from fairlead.model.errors import UsageError

    if value is None or value == "none":
        body[name] = body.get(name) if value is None else None
        return
    try:
        body[name] = int(value) if value.lstrip("-").isdecimal() else float(value)
    except ValueError:
        option = f"--{name.replace('_', '-')}"
        raise UsageError(f"{option}: {value!r}: expected a number, or none") from None


def _caps_text(row: dict[str, Any]) -> str:
    """Return the caps of a tenant, such as ``priority ≤ 5``."""
    names = ("priority", "weight", "jobs")
    caps = {name: row.get(f"max_{name}") for name in names}
    return ", ".join(f"{name} ≤ {cap:g}" for name, cap in caps.items() if cap is not None)
