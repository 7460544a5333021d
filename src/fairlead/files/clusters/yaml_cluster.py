"""Clusters in YAML; errors name the line."""

from collections.abc import Callable, Collection
from typing import TypeVar

import yaml

from fairlead.files.parsing.document import parse_nodes
from fairlead.files.parsing.fields import (
    MAX_COUNT,
    accelerator,
    name,
    number,
    quote,
    unknown_name_error,
    whole_number,
)
from fairlead.files.parsing.text import SourceText
from fairlead.model.cluster import Accelerator, Node
from fairlead.model.errors import InputError

T = TypeVar("T")


def parse_cluster_yaml(text: SourceText) -> tuple[tuple[Node, ...], dict[str, Accelerator]]:
    """Return the nodes of a YAML cluster and the details of its accelerators."""
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
                raise _at(item, "too many devices", f"expected at most {MAX_COUNT:,}")
            nodes += added
        _require_unique(nodes, top["nodes"])
        details = {}
        if "accelerators" in top:
            held = dict.fromkeys(device for node in nodes for device in node.devices)
            for label, entry in _fields(top["accelerators"]).items():
                if label not in held:
                    # Otherwise the bundled price would apply in spite of a misspelt name.
                    raise unknown_name_error("accelerator", label, held).within(
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
    repeat = _scalar(fields["repeat"], whole_number, "repeat")
    if not 1 <= repeat * max(len(devices), 1) <= MAX_COUNT:
        raise _at(fields["repeat"], f"out of range: {repeat}", "expected 1 or more", "repeat")
    return [Node(f"{label}-{i}", devices, rack) for i in range(repeat)]


def _devices(item: yaml.Node) -> tuple[str, ...]:
    if isinstance(item, yaml.SequenceNode):
        return tuple(_scalar(entry, accelerator, "devices") for entry in _items(item))
    held: list[str] = []
    for label, entry in _fields(item).items():
        count = _scalar(entry, whole_number, f"devices.{label}")
        if not 0 <= count <= MAX_COUNT:
            raise _at(entry, f"out of range: {count}", "expected 0 or more", "devices")
        held += [accelerator(label)] * count
    return tuple(held)


def _accelerator(label: str, item: yaml.Node) -> Accelerator:
    values: dict[str, float] = {}
    for key, entry in _fields(item, optional=("memory_gib", "usd_per_hour")).items():
        where = f"accelerators.{label}.{key}"
        values[key] = _scalar(entry, number, where)
        if values[key] < 0 or (key == "memory_gib" and values[key] == 0):
            raise _at(entry, f"out of range: {quote(values[key])}", "expected more", where)
    return Accelerator(accelerator(label), values.get("memory_gib"), values.get("usd_per_hour"))


def _require_unique(nodes: list[Node], item: yaml.Node) -> None:
    seen: set[str] = set()
    for node in nodes:
        if node.id in seen:
            raise _at(item, f"duplicate node {quote(node.id)}", "expected unique ids")
        seen.add(node.id)


def _fields(
    item: yaml.Node, *, required: Collection[str] = (), optional: Collection[str] = ()
) -> dict[str, yaml.Node]:
    """Return the entries of a mapping; without required and optional names, any are allowed."""
    if not isinstance(item, yaml.MappingNode):
        wanted = ", ".join([*required, *optional]) or "name: value"
        raise _at(item, "not a mapping", f"expected {wanted}")
    entries: dict[str, yaml.Node] = {}
    for key, value in item.value:
        label = _scalar(key, name, None)
        known = [*required, *optional]
        if known and label not in known:
            raise unknown_name_error("field", label, known).within(line=key.start_mark.line + 1)
        if label in entries:
            raise _at(key, f"duplicate field {quote(label)}", "remove one")
        entries[label] = value
    for label in required:
        if label not in entries:
            raise _at(item, "missing", f"expected {', '.join(required)}", label)
    return entries


def _items(item: yaml.Node) -> list[yaml.Node]:
    if not isinstance(item, yaml.SequenceNode):
        raise _at(item, "not a list", "expected a list, one '- ' per line")
    return list(item.value)


def _scalar(item: yaml.Node, read: Callable[[object], T], field: str | None) -> T:
    try:
        return read(item.value if isinstance(item, yaml.ScalarNode) else [])
    except InputError as error:
        raise error.within(line=item.start_mark.line + 1, field=field) from None


def _at(item: yaml.Node, problem: str, fix: str, field: str | None = None) -> InputError:
    return InputError(problem, fix=fix, line=item.start_mark.line + 1, field=field)
