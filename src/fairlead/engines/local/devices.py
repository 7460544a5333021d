"""Devices of this machine over all starts: each keeps its node and its number there.

The scheduler never renumbers devices. So a device that is gone stays in the list as missing, until
it returns or another device of its kind replaces it; a device too many becomes part of a further
node, such as ``host+1``.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count, takewhile
from pathlib import Path

from fairlead.atomic_file import replace_text
from fairlead.model.cluster import Cluster, Node
from fairlead.model.errors import UsageError

DEVICES_FILE = "devices.json"
"""name of the file in the data directory"""


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a node."""

    accelerator: str
    uuid: str = ""
    """name for CUDA_VISIBLE_DEVICES; empty for an emulated device"""
    present: bool = True


Nodes = dict[str, tuple[Device, ...]]
"""node → its devices in the order of their numbers"""


class LocalDevices:
    """The devices that this machine has and has had, by node."""

    def __init__(self, data: Path, present: Cluster, uuids: Sequence[str] = ()) -> None:
        """Match the present devices with those in the data directory; nothing is written yet."""
        self._path = data / DEVICES_FILE
        self.nodes = _read(self._path)
        racks, names = {}, iter(uuids)
        for node in present.nodes:
            devices = [Device(accelerator, next(names, "")) for accelerator in node.devices]
            racks.update(self._match(node, devices))
        for name in self.nodes.keys() - racks.keys():
            self.nodes[name] = tuple(replace(one, present=False) for one in self.nodes[name])
        usable = [name for name in self.nodes if any(one.present for one in self.nodes[name])]
        self.cluster = Cluster(
            tuple(
                Node(name, tuple(one.accelerator for one in self.nodes[name]), racks[name])
                for name in usable
            ),
            present.details,
        )
        """nodes with at least one present device; missing devices keep their numbers"""

    @property
    def missing(self) -> dict[str, tuple[int, ...]]:
        """node of the cluster → numbers of its missing devices."""
        return {
            node.id: tuple(
                number for number, one in enumerate(self.nodes[node.id]) if not one.present
            )
            for node in self.cluster.nodes
        }

    def visible(self, node: str, number: int) -> str:
        """Return the name of a device for CUDA_VISIBLE_DEVICES; empty if it is emulated."""
        return self.nodes[node][number].uuid

    def save(self) -> None:
        """Write the devices to the data directory, for the next start."""
        body = {
            name: [[one.accelerator, one.uuid] for one in listed]
            for name, listed in self.nodes.items()
        }
        replace_text(self._path, json.dumps(body, indent=1) + "\n", mode=0o600)

    def _match(self, node: Node, devices: Sequence[Device]) -> dict[str, str]:
        """Give each device of a node its earlier number or a new one; return its parts' racks."""
        parts = _parts(self.nodes, node.id)
        slots = {(part, i): one for part in parts for i, one in enumerate(self.nodes[part])}
        by_uuid = {one.uuid: one for one in devices if one.uuid}
        matched = {
            slot: by_uuid.pop(known.uuid) for slot, known in slots.items() if known.uuid in by_uuid
        }
        left: dict[str, list[Device]] = {}
        for one in devices:
            if not one.uuid or one.uuid in by_uuid:
                left.setdefault(one.accelerator, []).append(one)
        for slot, known in slots.items():
            if slot not in matched and left.get(known.accelerator):
                matched[slot] = left[known.accelerator].pop(0)
        for part in parts:
            self.nodes[part] = tuple(
                matched.get((part, i), replace(one, present=False))
                for i, one in enumerate(self.nodes[part])
            )
        unmatched = {id(one) for same in left.values() for one in same}
        if added := [one for one in devices if id(one) in unmatched]:
            name = f"{node.id}+{len(parts)}" if parts else node.id
            self.nodes[name] = tuple(added)
            parts.append(name)
        return dict.fromkeys(parts, node.rack)


def _parts(nodes: Nodes, name: str) -> list[str]:
    """Return the known parts of a node: the node itself and its later additions."""
    if name not in nodes:
        return []
    later = (f"{name}+{number}" for number in count(1))
    return [name, *takewhile(nodes.__contains__, later)]


def _read(path: Path) -> Nodes:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(name): tuple(Device(str(kind), str(uuid)) for kind, uuid in listed)
            for name, listed in stored.items()
        }
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError):
        raise UsageError(
            f"{path}: damaged: restore it from a backup, or delete it and give the node another"
            " name (--node-name)"
        ) from None
