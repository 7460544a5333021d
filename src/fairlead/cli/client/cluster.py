"""``fairlead nodes`` of a running scheduler."""

from typing import Annotated, Any

import typer

from fairlead.cli.shared.confirmation import confirm
from fairlead.cli.shared.options import Json

nodes = typer.Typer()

_MAX_NAMED = 10
"""maximum number of stranded jobs that are listed when a node is removed"""


@nodes.callback(invoke_without_command=True)
def list_nodes(
    context: typer.Context,
    devices: Annotated[
        bool, typer.Option("--devices", help="Show memory, load and faults of each GPU.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List nodes; cordon, drain, return, remove and restore them.

    Without a subcommand, list the nodes and their busy devices. A faulty GPU is drained without a
    command, and used again after `fairlead nodes return`.

    Example:  fairlead nodes
    """
    if context.invoked_subcommand is not None:
        return
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import counts_text, pluralise, table
    from fairlead.client import Client

    answer = Client.from_environment().get("/v1/nodes")
    if as_json:
        print_json(answer)
        return
    if devices:
        _print_devices(answer)
        return
    rows = [
        [
            row["id"],
            _node_state(row),
            counts_text(row["devices"]),
            f"{row['busy']}/{sum(row['devices'].values())}",
            str(row["taken"] or ""),
        ]
        for row in answer
    ]
    heads = ["node", "state", "devices", "busy", "taken"]
    table(pluralise(len(answer), "node"), heads, rows, figures=False)
    if any(row["taken"] for row in answer):
        typer.echo("taken: missing from their machine, or held by users outside Fairlead")
    for row in answer:
        for device in row["health"]:
            if device["fault"]:
                typer.echo(f"{row['id']}: device {device['number']} drained: {device['fault']}")


def _print_devices(answer: list[dict[str, Any]]) -> None:
    """Print the readings of each GPU."""
    from fairlead.cli.shared.output import pluralise, table

    rows = [
        [
            row["id"],
            str(device["number"]),
            device["accelerator"],
            _of_total(device["memory_used_gib"], device["memory_gib"]),
            _figure(device["utilisation"], "{:.0%}"),
            _figure(device["temperature_c"], "{:.0f} °C"),
            _figure(device["uncorrectable_ecc"], "{}"),
            ", ".join(device["throttled"]),
            device["fault"] or "",
        ]
        for row in answer
        for device in row["health"]
    ]
    heads = ["node", "device", "accelerator", "memory", "load", "temperature", "ECC errors"]
    table(
        pluralise(len(rows), "device") + " with readings",
        [*heads, "throttled", "fault"],
        rows,
        figures=False,
    )
    for reason in sorted({row["unread"] for row in answer if row.get("unread")}):
        typer.echo(f"no readings: {reason}")


def _of_total(used: float | None, total: float | None) -> str:
    return "" if used is None or total is None else f"{used:.1f}/{total:.1f} GiB"


def _figure(value: float | None, text: str) -> str:
    return "" if value is None else text.format(value)


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
    node: Annotated[str, typer.Argument(help="Node id.")],
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Remove a node; drain it first if jobs run there.

    New jobs that need it are rejected. Queued jobs that can run nowhere else are listed; they
    wait. `fairlead nodes restore` undoes the removal.

    Example:  fairlead nodes remove v100-0 --yes
    """
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import pluralise
    from fairlead.client import Client
    from fairlead.server_address import node_path

    path = node_path(node)
    confirm(f"remove node {node}?", yes=yes)
    answer = Client.from_environment().ask("DELETE", path)
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


@nodes.command("restore")
def restore_node(
    node: Annotated[str, typer.Argument(help="Node id.")], as_json: Json = False
) -> None:
    """Undo the removal of a node: use it again as soon as the engine has it.

    Example:  fairlead nodes restore v100-0
    """
    _change_node(node, "restore", as_json)


@nodes.command("mig")
def set_mig_layout(
    node: Annotated[str, typer.Argument(help="Node id; the node must be drained.")],
    gpu: Annotated[int, typer.Argument(help="Number of the GPU in nvidia-smi -L.")],
    layout: Annotated[
        str, typer.Argument(help="MIG profiles separated by commas, or none: the whole GPU.")
    ],
    as_json: Json = False,
) -> None:
    """Divide a GPU of a drained node into MIG devices, which join as a further node.

    Needs the local engine and a server that runs as root.

    Example:  fairlead nodes mig node1 0 3g.71gb,2g.35gb,1g.18gb,1g.18gb
    """
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import counts_text
    from fairlead.client import Client
    from fairlead.server_address import node_path

    profiles = [] if layout == "none" else layout.split(",")
    path = node_path(node, "mig")
    answer = Client.from_environment().ask("POST", path, {"gpu": gpu, "profiles": profiles})
    if as_json:
        print_json(answer)
        return
    for row in answer:
        typer.echo(f"{row['id']}: {_node_state(row)}, {counts_text(row['devices'])}")


def _change_node(node: str, action: str, as_json: bool) -> None:
    from fairlead.cli.shared.json_output import print_json
    from fairlead.client import Client
    from fairlead.server_address import node_path

    path = node_path(node, action)
    answer = Client.from_environment().post(path)
    if as_json:
        print_json(answer)
    else:
        typer.echo(f"{node}: {_node_state(answer)}")


def _node_state(node: dict[str, Any]) -> str:
    if node["drained"]:
        return "drained"
    return "down" if not node["up"] else "cordoned" if node["cordoned"] else "up"
