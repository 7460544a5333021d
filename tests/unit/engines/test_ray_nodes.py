"""Parsing of Ray's nodes, their place in the registry, and devices that others hold."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fairlead.engines.base import DevicesTakenReport, NodeDown, NodeUp
from fairlead.engines.ray.nodes import (
    RayNode,
    RayNodeStatus,
    inventory,
    latest_by_name,
    taken_devices,
)
from fairlead.model.cluster import Node


def listed(name: str, resources: dict[str, float], **more: Any) -> dict[str, Any]:
    """Return a node as Ray lists it."""
    usual = {"CPU": 8.0, "memory": 1e9, "object_store_memory": 1e8, "node:10.0.0.7": 1.0}
    return {
        "id": f"id-{name}",
        "name": name,
        "address": "10.0.0.7",
        "alive": True,
        "resources": {**usual, **resources},
        "labels": {},
        "free": resources,
        **more,
    }


@pytest.mark.parametrize(
    ("resources", "devices"),
    [
        ({"GPU": 2.0, "accelerator_type:V100": 1.0}, ("v100", "v100")),
        ({"GPU": 1.0}, ("gpu",)),
        ({"V100": 1.0, "K80": 2.0}, ("k80", "k80", "v100")),
        (
            {"GPU": 1.0, "accelerator_type:H100": 1.0, "H200-3g.71gb": 1.0},
            ("h100", "h200-3g.71gb"),
        ),
        ({"license": 5.0, "node:__internal_head__": 1.0}, ()),
        ({"GPU": 0.0}, ()),
    ],
)
def test_accelerators_are_typed_gpus_and_resources_named_like_one(
    resources: dict[str, float], devices: tuple[str, ...]
) -> None:
    assert RayNode.read(listed("a", resources)).devices == devices


def test_named_resources_are_the_only_accelerators_besides_gpus() -> None:
    node = RayNode.read(listed("a", {"V100": 1.0, "npu": 2.0}), ["npu"])
    assert node.devices == ("npu", "npu")


def test_a_bundle_is_pinned_to_its_node_and_uses_ray_s_resource_names() -> None:
    node = RayNode.read(listed("a", {"GPU": 4.0, "accelerator_type:V100": 1.0, "K80": 1.0}))
    assert node.bundle(("v100", "v100", "k80"), 2.0) == {
        "node:10.0.0.7": 0.001,
        "GPU": 2.0,
        "K80": 1.0,
        "CPU": 6.0,
    }
    assert "CPU" not in node.bundle(("k80",), 0.0)


def test_a_living_node_replaces_a_dead_one_of_the_same_name() -> None:
    dead = RayNode.read(listed("a", {"V100": 1.0}, id="old", alive=False))
    back = RayNode.read(listed("a", {"V100": 1.0}, id="new"))
    for order in ([dead, back], [back, dead]):
        assert latest_by_name(order)["a"].id == "new"
    assert not latest_by_name([dead])["a"].alive


def test_devices_keep_their_indices_when_nodes_come_and_go(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"

    def registered(*names: str) -> list[str]:
        nodes = [RayNode.read(listed(name, {"V100": 1.0})) for name in names]
        return [node.id for node in inventory(path, nodes).nodes]

    assert registered("n10", "n2") == ["n2", "n10"]
    assert registered("n10", "n1") == ["n2", "n10", "n1"]
    assert registered() == ["n2", "n10", "n1"]


def test_taken_devices_are_not_those_of_our_leases() -> None:
    node = Node("a", ("k80", "k80", "k80", "v100"))
    resources = {"K80": 3.0, "V100": 1.0}

    def taken(free: dict[str, float], leased: set[int], **reserved: int) -> list[int]:
        ray_node = RayNode.read(listed("a", resources, free=free))
        return taken_devices(node, ray_node, leased, Counter(reserved))

    assert taken({"K80": 3.0, "V100": 1.0}, set()) == []
    assert taken({"K80": 2.0, "V100": 1.0}, set()) == [2]
    assert taken({"K80": 1.0, "V100": 0.0}, {2}, k80=1) == [1, 3]
    assert taken({"K80": 2.0, "V100": 1.0}, {0}, k80=1) == []
    # Ray still reserves the device of a lease that has just ended.
    assert taken({"K80": 2.0, "V100": 1.0}, set(), k80=1) == []
    resources = {"K80": 2.0}  # the node has lost a device of each kind
    assert taken({"K80": 1.0}, {1}, k80=1) == [2, 3]
    resources = {"K80": 5.0, "V100": 1.0}  # others use its new devices first
    assert taken({"K80": 3.0, "V100": 1.0}, set()) == []
    assert taken({"K80": 2.0, "V100": 1.0}, set()) == [2]


def test_node_reports_come_once_and_again_after_a_restart(tmp_path: Path) -> None:
    status = RayNodeStatus(tmp_path / "down.json")
    assert status.record("a", True, 0.0) == []
    assert status.record("a", False, 1.0) == [NodeDown("a")]
    assert status.record("a", False, 2.0) == []
    after = RayNodeStatus(tmp_path / "down.json")
    after.load()
    assert after.record("a", False, 0.0) == [NodeDown("a")]
    assert after.record("a", True, 1.0) == [NodeUp("a")]
    assert after.record("b", True, 1.0) == []
    # The receiver may have died before it persisted the report: for a while it is repeated.
    last = RayNodeStatus(tmp_path / "down.json")
    last.load()
    assert last.record("a", True, 0.0) == [NodeUp("a")]


def test_taken_devices_are_reported_when_two_polls_agree(tmp_path: Path) -> None:
    status = RayNodeStatus(tmp_path / "down.json")
    assert status.devices("a", ()) == []
    assert status.devices("a", ()) == [DevicesTakenReport("a", ())]
    assert status.devices("a", [1]) == []
    assert status.devices("a", ()) == []
    assert status.devices("a", [1]) == []
    assert status.devices("a", [1]) == [DevicesTakenReport("a", (1,))]
    assert status.devices("a", [1]) == []


def test_the_server_does_not_import_ray() -> None:
    code = (
        "import sys, fairlead.engines.ray.engine, fairlead.server.serve;"
        " sys.exit('ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
