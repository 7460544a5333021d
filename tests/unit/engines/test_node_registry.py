"""Machines that gain or lose devices: no index changes, and engines keep to whole machines."""

import json
from pathlib import Path

import pytest

from fairlead.engines.base import (
    DevicesTakenReport,
    LaunchOrder,
    NodeDown,
    NodeJoined,
    NodeUp,
    Report,
    Started,
)
from fairlead.engines.shared.multi_node import split_by_node
from fairlead.engines.shared.nodes.registry import NodeRegistry, update_registry
from fairlead.engines.shared.nodes.status import NodeStatus
from fairlead.model.cluster import Node

TWO, OTHER = Node("n1", ("v100", "v100"), "r1"), Node("n2", ("k80",), "r2")
GROWN = Node("n1", ("a100", "v100", "v100", "v100"), "r1")


def registry(path: Path) -> NodeRegistry:
    """Return the registry after a machine of two devices has gained two more."""
    update_registry(path, [TWO, OTHER])
    return update_registry(path, [GROWN, OTHER])


@pytest.fixture
def grown(tmp_path: Path) -> NodeRegistry:
    return registry(tmp_path / "nodes.json")


def order(*devices: tuple[str, int]) -> LaunchOrder:
    accelerators = tuple(f"of {name} {number}" for name, number in devices)
    return LaunchOrder(
        lease=5,
        job="j1",
        command=("x",),
        directory="/",
        devices=devices,
        accelerators=accelerators,
        checkpoint_dir="/c",
        log_dir="/l",
    )


def test_gained_devices_are_a_further_node_and_all_indices_stay(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    grown = registry(path)
    more = Node("n1+1", ("a100", "v100"), "r1")
    assert grown.nodes == (TWO, OTHER, more)
    assert grown.machines == (Node("n1", ("v100", "v100", "a100", "v100"), "r1"), OTHER)
    assert NodeRegistry.read(path) == grown
    assert update_registry(path, [GROWN]) == grown  # as after a restart
    assert update_registry(path, [TWO]) == grown  # they are lost again
    again = update_registry(path, [Node("n1", (*GROWN.devices, "a100"))])
    assert again.nodes == (*grown.nodes, Node("n1+2", ("a100",)))
    assert update_registry(path, [Node("n2", ("h100",))]).nodes[-1] == Node("n2+1", ("h100",))


def test_a_registry_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps([["n1", ["v100", "v100"], "r1"], ["n2", ["k80"], "r2"]]))
    assert NodeRegistry.read(path) == NodeRegistry((TWO, OTHER))
    assert NodeRegistry.read(tmp_path / "none.json") == NodeRegistry()


def test_machines_with_the_names_of_further_nodes_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    twin = Node("n1+1", ("k80",))
    made = update_registry(path, [TWO, twin, TWO])
    assert made.nodes == (TWO, twin)
    made = update_registry(path, [GROWN, twin])
    assert [node.id for node in made.nodes] == ["n1", "n1+1", "n1+2"]
    assert made.machines[1] == twin
    late = NodeRegistry((TWO,)).extended([GROWN]).extended([twin])
    assert [node.id for node in late.nodes] == ["n1", "n1+1", "n1+1+1"]
    assert late.machines[1] == twin


def test_an_order_names_the_machine_and_runs_as_one_part_there(grown: NodeRegistry) -> None:
    located = grown.on_machines(order(("n1+1", 1), ("n2", 0), ("n1", 1)))
    assert located.devices == (("n1", 3), ("n2", 0), ("n1", 1))
    first, second = split_by_node(located)
    assert first.devices == (("n1", 1), ("n1", 3))
    assert first.accelerators == ("of n1 1", "of n1+1 1")
    assert second.devices == (("n2", 0),)
    assert grown.on_machines(order(("n9", 0))).devices == (("n9", 0),)


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (NodeDown("n1"), [NodeDown("n1"), NodeDown("n1+1")]),
        (NodeUp("n2"), [NodeUp("n2")]),
        (
            DevicesTakenReport("n1", (1, 2), gone=True),
            [DevicesTakenReport("n1", (1,), True), DevicesTakenReport("n1+1", (0,), True)],
        ),
        (DevicesTakenReport("n2", ()), [DevicesTakenReport("n2", ())]),
        (NodeJoined(OTHER), [NodeJoined(OTHER)]),
        (Started(7), [Started(7)]),
    ],
)
def test_a_report_on_a_machine_is_made_on_each_of_its_nodes(
    grown: NodeRegistry, report: Report, expected: list[Report]
) -> None:
    assert grown.by_node(report) == expected


def test_new_devices_of_a_machine_that_is_down_are_reported_as_down(tmp_path: Path) -> None:
    status = NodeStatus(tmp_path / "down.json")
    assert status.record("n1", False, 0.0) == [NodeDown("n1")]
    status.repeat_if_down("n1")
    status.repeat_if_down("n2")
    assert status.record("n1", False, 1.0) == [NodeDown("n1")]
    assert status.record("n1", False, 2.0) == []
    assert status.record("n2", True, 2.0) == []
