"""Clusters: the plain text ``v100=36/4,k80=8``, or YAML with nodes, racks, memory, prices."""

from collections.abc import Mapping
from pathlib import Path

from fairlead.files.bundled import with_known
from fairlead.files.parsing.fields import (
    MAX_COUNT,
    accelerator,
    quote,
    whole_number,
)
from fairlead.files.parsing.text import read_text, write_text
from fairlead.model.cluster import Accelerator, Cluster, Node
from fairlead.model.errors import InputError

_FIX = "expected accelerator=count[/devices per node], separated by commas: v100=36/4,k80=8"


def read_cluster(text_or_path: str | Path, field: str = "cluster") -> Cluster:
    """Return the cluster of a plain text or of a YAML file; errors name the field.

    Accelerators keep their names and order. Without ``/n`` all devices of an accelerator are on
    one node. Missing memory and prices are the bundled ones, if the name is known.
    """
    if not isinstance(text_or_path, str | Path):
        raise InputError(f"not a text: {quote(text_or_path)}", fix=_FIX, field=field)
    if isinstance(text_or_path, str) and not _is_file(text_or_path):
        return parse_cluster(text_or_path, field)
    from fairlead.files.clusters.yaml_cluster import parse_cluster_yaml  # noqa: PLC0415 - yaml is slow

    text = read_text(text_or_path)
    nodes, details = parse_cluster_yaml(text)
    try:
        return _cluster(nodes, details)
    except InputError as error:
        raise error.within(source=text.name) from None


def parse_cluster(text: str, field: str = "cluster", max_devices: int = MAX_COUNT) -> Cluster:
    """Return the cluster of a plain text."""
    counts: dict[str, int] = {}
    per_node: dict[str, int] = {}
    try:
        for part in text.split(","):
            label, counted, size = _part(part)
            if label in counts:
                raise InputError(f"duplicate accelerator {quote(label)}", fix="add the counts")
            counts[label] = counted
            if size is not None:
                per_node[label] = size
        if sum(counts.values()) > max_devices:
            raise InputError("too many devices", fix=f"expected at most {max_devices:,}")
        plain = Cluster.of(counts, per_node=per_node)
    except InputError as error:
        raise error.within(field=field) from None
    return _cluster(plain.nodes, {})


def _part(part: str) -> tuple[str, int, int | None]:
    label, equals, rest = part.partition("=")
    if not equals:
        raise InputError(f"neither a file nor a cluster: {quote(part)}", fix=_FIX)
    counted, slash, size = rest.partition("/")
    name, devices = accelerator(label), whole_number(counted)
    per_node = whole_number(size) if slash else None
    if devices < 0:
        raise InputError(f"negative: {quote(part)}", fix="expected 0 devices or more")
    if per_node is not None and per_node < 1:
        raise InputError(f"no devices per node: {quote(part)}", fix="expected /1 or more")
    return name, devices, per_node


def _cluster(nodes: tuple[Node, ...], details: Mapping[str, Accelerator]) -> Cluster:
    bare = Cluster(nodes)
    return Cluster(nodes, with_known(bare.accelerators, details))


def _is_file(text: str) -> bool:
    if text.removesuffix(".gz").endswith((".yaml", ".yml", ".json")):
        return True
    try:
        return bool(text.strip()) and Path(text).exists()
    except (OSError, ValueError):  # too long for a path, or not one at all
        return False


def format_cluster(cluster: Cluster) -> str:
    """Return the cluster as YAML that reads back as the same cluster."""
    import yaml  # noqa: PLC0415 - yaml is slow

    nodes: list[dict[str, object]] = []
    i = 0
    while i < len(cluster.nodes):
        run = _run(cluster.nodes, i)
        node = cluster.nodes[i]
        entry: dict[str, object] = {"id": node.id if run == 1 else node.id[: -len("-0")]}
        if run > 1:
            entry["repeat"] = run
        if node.rack:
            entry["rack"] = node.rack
        entry["devices"] = _devices(node)
        nodes.append(entry)
        i += run
    details = {
        label: {
            key: value
            for key in ("memory_gib", "usd_per_hour")
            if (value := getattr(cluster.details.get(label), key, None)) is not None
        }
        for label in cluster.accelerators
    }
    document = {"nodes": nodes, "accelerators": {k: v for k, v in details.items() if v}}
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))


def _run(nodes: tuple[Node, ...], first: int) -> int:
    """Return the number of equal nodes, from ``first`` on, that are named base-0, base-1, …"""
    start = nodes[first]
    if not start.id.endswith("-0") or len(start.id) == len("-0"):
        return 1
    base = start.id[: -len("-0")]
    run = 1
    while first + run < len(nodes) and nodes[first + run] == Node(
        f"{base}-{run}", start.devices, start.rack
    ):
        run += 1
    return run


def _devices(node: Node) -> dict[str, int] | list[str]:
    """Return the devices by count, or as a list if accelerators alternate."""
    counts = {label: node.devices.count(label) for label in dict.fromkeys(node.devices)}
    in_blocks = tuple(label for label, n in counts.items() for _ in range(n))
    return counts if in_blocks == node.devices else list(node.devices)


def write_cluster(cluster: Cluster, path: str | Path) -> None:
    """Write the cluster to a YAML file."""
    write_text(path, format_cluster(cluster))
