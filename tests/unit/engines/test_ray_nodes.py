"""Ray's nodes are read as they are meant and keep their places; others keep their devices."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fairlead.engines.base import DevicesTaken, NodeDown, NodeUp
from fairlead.engines.ray.nodes import (
    RayNode,
    Told,
    alive,
    inventory,
    taken,
)
from fairlead.model.cluster import Node


def said(name: str, resources: dict[str, float], **more: Any) -> dict[str, Any]:
    """Return what Ray says of a node."""
    own = {"CPU": 8.0, "memory": 1e9, "object_store_memory": 1e8, "node:10.0.0.7": 1.0}
    return {
        "id": f"id-{name}",
        "name": name,
        "address": "10.0.0.7",
        "alive": True,
        "resources": {**own, **resources},
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
def test_accelerators_are_gpus_by_type_and_resources_called_like_one(
    resources: dict[str, float], devices: tuple[str, ...]
) -> None:
    assert RayNode.read(said("a", resources)).devices == devices


def test_resources_that_are_chosen_are_the_only_ones_besides_gpus() -> None:
    found = RayNode.read(said("a", {"V100": 1.0, "npu": 2.0}), ["npu"])
    assert found.devices == ("npu", "npu")


def test_a_bundle_is_pinned_to_its_node_and_asks_for_what_ray_calls_the_devices() -> None:
    found = RayNode.read(said("a", {"GPU": 4.0, "accelerator_type:V100": 1.0, "K80": 1.0}))
    assert found.bundle(("v100", "v100", "k80"), 2.0) == {
        "node:10.0.0.7": 0.001,
        "GPU": 2.0,
        "K80": 1.0,
        "CPU": 6.0,
    }
    assert "CPU" not in found.bundle(("k80",), 0.0)


def test_a_name_s_living_node_counts_and_not_the_one_that_died_before() -> None:
    dead = RayNode.read(said("a", {"V100": 1.0}, id="old", alive=False))
    back = RayNode.read(said("a", {"V100": 1.0}, id="new"))
    for order in ([dead, back], [back, dead]):
        assert alive(order)["a"].id == "new"
    assert not alive([dead])["a"].alive


def test_devices_keep_their_numbers_when_nodes_come_and_go(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"

    def listed(*names: str) -> list[str]:
        found = [RayNode.read(said(name, {"V100": 1.0})) for name in names]
        return [node.id for node in inventory(path, found).nodes]

    assert listed("n10", "n2") == ["n2", "n10"]
    assert listed("n10", "n1") == ["n2", "n10", "n1"]
    assert listed() == ["n2", "n10", "n1"]


def test_what_others_hold_are_devices_that_we_do_not() -> None:
    node = Node("a", ("k80", "k80", "k80", "v100"))
    resources = {"K80": 3.0, "V100": 1.0}

    def others(free: dict[str, float], held: set[int], **ours: int) -> list[int]:
        found = RayNode.read(said("a", resources, free=free))
        return taken(node, found, held, Counter(ours))

    assert others({"K80": 3.0, "V100": 1.0}, set()) == []
    assert others({"K80": 2.0, "V100": 1.0}, set()) == [2]
    assert others({"K80": 1.0, "V100": 0.0}, {2}, k80=1) == [1, 3]
    assert others({"K80": 2.0, "V100": 1.0}, {0}, k80=1) == []
    # Ray still holds what a lease of ours held that has just ended.
    assert others({"K80": 2.0, "V100": 1.0}, set(), k80=1) == []


def test_what_is_told_is_told_once_and_again_after_a_restart(tmp_path: Path) -> None:
    told = Told(tmp_path / "down.json")
    assert told.standing("a", True, 0.0) == []
    assert told.standing("a", False, 1.0) == [NodeDown("a")]
    assert told.standing("a", False, 2.0) == []
    after = Told(tmp_path / "down.json")
    after.recall()
    assert after.standing("a", False, 0.0) == [NodeDown("a")]
    assert after.standing("a", True, 1.0) == [NodeUp("a")]
    assert after.standing("b", True, 1.0) == []
    # Whoever was told may have died before writing it down: for a while it is told again.
    last = Told(tmp_path / "down.json")
    last.recall()
    assert last.standing("a", True, 0.0) == [NodeUp("a")]


def test_devices_that_others_hold_are_told_when_seen_twice(tmp_path: Path) -> None:
    told = Told(tmp_path / "down.json")
    assert told.devices("a", ()) == []
    assert told.devices("a", ()) == [DevicesTaken("a", ())]
    assert told.devices("a", [1]) == []
    assert told.devices("a", ()) == []
    assert told.devices("a", [1]) == []
    assert told.devices("a", [1]) == [DevicesTaken("a", (1,))]
    assert told.devices("a", [1]) == []


def test_the_server_does_not_load_ray() -> None:
    code = (
        "import sys, fairlead.engines.ray.engine, fairlead.server.serve;"
        " sys.exit('ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
