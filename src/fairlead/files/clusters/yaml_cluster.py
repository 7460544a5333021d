"""The YAML form of a cluster, read as nodes of the document so that errors know their line."""

from collections.abc import Callable, Collection
from typing import TypeVar

import yaml

from fairlead.files.parsing.document import parse_nodes
from fairlead.files.parsing.fields import (
    MAX_COUNT,
    accelerator,
    name,
    number,
    quoted,
    unknown,
    whole,
)
from fairlead.files.parsing.text import Text
from fairlead.model.cluster import Accelerator, Node
from fairlead.model.errors import InputError

T = TypeVar("T")


def parse_cluster_yaml(text: Text) -> tuple[tuple[Node, ...], dict[str, Accelerator]]:
    """Return the nodes, and the details given for accelerators, of a YAML cluster."""
    text.check_lines()
    try:
        root = parse_nodes(text, "nodes and accelerators")
        top = _fields(root, required=("nodes",), optional=("accelerators",))
        nodes: list[Node] = []
        total = 0
        for item in _items(top["nodes"]):
            added = _nodes(item)
            total += len(added) * max(1, len(added[0].devices))
            if total > MAX_COUNT:
                raise _at(item, "there are too many devices", f"give at most {MAX_COUNT:,}")
            nodes += added
        _require_unique(nodes, top["nodes"])
        details = {}
        if "accelerators" in top:
            held = dict.fromkeys(device for node in nodes for device in node.devices)
            for label, entry in _fields(top["accelerators"]).items():
                if label not in held:
                    # Else a misspelt name would leave the bundled price in force.
                    raise unknown("accelerator", label, held).within(
                        line=entry.start_mark.line + 1, field="accelerators"
                    )
                details[label] = _accelerator(label, entry)
        return tuple(nodes), details
    except InputError as error:
        raise error.within(source=text.name) from None


def _nodes(item: yaml.Node) -> list[Node]:
    fields = _fields(item, required=("id", "devices"), optional=("rack", "repeat"))
    label = _scalar(fields["id"], name, "id")
    rack = _scalar(fields["rack"], name, "rack") if "rack" in fields else ""
    devices = _devices(fields["devices"])
    if "repeat" not in fields:
        return [Node(label, devices, rack)]
    repeat = _scalar(fields["repeat"], whole, "repeat")
    if not 1 <= repeat * max(len(devices), 1) <= MAX_COUNT:
        raise _at(fields["repeat"], f"repeat {repeat} is not possible", "give 1 or more", "repeat")
    return [Node(f"{label}-{i}", devices, rack) for i in range(repeat)]


def _devices(item: yaml.Node) -> tuple[str, ...]:
    if isinstance(item, yaml.SequenceNode):
        return tuple(_scalar(entry, accelerator, "devices") for entry in _items(item))
    held: list[str] = []
    for label, entry in _fields(item).items():
        count = _scalar(entry, whole, f"devices.{label}")
        if not 0 <= count <= MAX_COUNT:
            raise _at(entry, f"{count} devices are not possible", "give 0 or more", "devices")
        held += [accelerator(label)] * count
    return tuple(held)


def _accelerator(label: str, item: yaml.Node) -> Accelerator:
    values: dict[str, float] = {}
    for key, entry in _fields(item, optional=("memory_gib", "usd_per_hour")).items():
        where = f"accelerators.{label}.{key}"
        values[key] = _scalar(entry, number, where)
        if values[key] < 0 or (key == "memory_gib" and values[key] == 0):
            raise _at(entry, f"{quoted(values[key])} is not possible", "give more", where)
    return Accelerator(accelerator(label), values.get("memory_gib"), values.get("usd_per_hour"))


def _require_unique(nodes: list[Node], item: yaml.Node) -> None:
    seen: set[str] = set()
    for node in nodes:
        if node.id in seen:
            raise _at(item, f"node {quoted(node.id)} is listed twice", "give each its own id")
        seen.add(node.id)


def _fields(
    item: yaml.Node, *, required: Collection[str] = (), optional: Collection[str] = ()
) -> dict[str, yaml.Node]:
    """Return the entries of a mapping; names are free where none are required or optional."""
    if not isinstance(item, yaml.MappingNode):
        wanted = f"give {', '.join([*required, *optional]) or 'name: value'}"
        raise _at(item, "this is not a mapping", wanted)
    found: dict[str, yaml.Node] = {}
    for key, value in item.value:
        label = _scalar(key, name, None)
        known = [*required, *optional]
        if known and label not in known:
            raise unknown("field", label, known).within(line=key.start_mark.line + 1)
        if label in found:
            raise _at(key, f"{quoted(label)} is given twice", "remove one")
        found[label] = value
    for label in required:
        if label not in found:
            raise _at(item, f"{label!r} is missing", f"give {', '.join(required)}")
    return found


def _items(item: yaml.Node) -> list[yaml.Node]:
    if not isinstance(item, yaml.SequenceNode):
        raise _at(item, "this is not a list", "give a list, one '- ' a line")
    return list(item.value)


def _scalar(item: yaml.Node, read: Callable[[object], T], field: str | None) -> T:
    try:
        return read(item.value if isinstance(item, yaml.ScalarNode) else [])
    except InputError as error:
        raise error.within(line=item.start_mark.line + 1, field=field) from None


def _at(item: yaml.Node, problem: str, fix: str, field: str | None = None) -> InputError:
    return InputError(problem, fix=fix, line=item.start_mark.line + 1, field=field)
