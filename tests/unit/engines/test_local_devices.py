"""Devices of this machine that change between starts."""

from pathlib import Path

import pytest

from fairlead.engines.local.devices import DEVICES_FILE, LocalDevices
from fairlead.files import parse_cluster
from fairlead.model.cluster import Cluster, Node
from fairlead.model.errors import UsageError


def start(data: Path, *gpus: str) -> LocalDevices:
    """Start with these GPUs, such as ``v100:A``."""
    kinds, uuids = zip(*(gpu.split(":") for gpu in gpus), strict=True)
    devices = LocalDevices(data, Cluster((Node("host", kinds),)), uuids)
    devices.save()
    return devices


def counts(devices: LocalDevices) -> dict[str, int]:
    return {node.id: len(node.devices) for node in devices.cluster.nodes}


def test_devices_that_stay_keep_their_numbers(tmp_path: Path) -> None:
    start(tmp_path, "v100:A", "v100:B")
    now = start(tmp_path, "v100:B")
    assert counts(now) == {"host": 2}
    assert now.missing == {"host": (0,)}
    assert now.visible("host", 1) == "B"
    back = start(tmp_path, "v100:B", "v100:A")
    assert back.missing == {"host": ()}
    assert [back.visible("host", number) for number in (0, 1)] == ["A", "B"]


def test_additional_devices_join_as_a_further_node_and_stay_there(tmp_path: Path) -> None:
    start(tmp_path, "v100:A", "v100:B")
    more = start(tmp_path, "v100:C", "v100:A", "k80:D", "v100:B")
    assert counts(more) == {"host": 2, "host+1": 2}
    assert more.cluster.nodes[1].devices == ("v100", "k80")
    assert start(tmp_path, "v100:A", "k80:D").missing == {"host": (1,), "host+1": (0,)}
    assert counts(start(tmp_path, *(f"h100:{name}" for name in "EFG"))) == {"host+2": 3}


def test_first_start_keeps_the_order_of_mixed_devices(tmp_path: Path) -> None:
    first = start(tmp_path, "v100:A", "k80:B", "v100:C")
    assert first.cluster.nodes[0].devices == ("v100", "k80", "v100")
    assert start(tmp_path, "k80:B", "v100:C", "v100:A").cluster == first.cluster


def test_device_of_the_same_kind_replaces_a_missing_one(tmp_path: Path) -> None:
    start(tmp_path, "v100:A", "v100:B")
    now = start(tmp_path, "v100:C", "v100:B")
    assert now.missing == {"host": ()}
    assert now.visible("host", 0) == "C"


def test_emulated_devices_are_matched_by_number(tmp_path: Path) -> None:
    def emulate(text: str) -> LocalDevices:
        devices = LocalDevices(tmp_path, parse_cluster(text))
        devices.save()
        return devices

    assert counts(emulate("v100=2,k80=1")) == {"v100-0": 2, "k80-0": 1}
    assert emulate("v100=1").missing == {"v100-0": (1,)}
    assert counts(emulate("v100=4,k80=1")) == {"v100-0": 2, "k80-0": 1, "v100-0+1": 2}


def test_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / DEVICES_FILE).write_text("[1]")
    with pytest.raises(UsageError, match="damaged"):
        start(tmp_path, "v100:A")


def test_start_that_fails_later_changes_nothing(tmp_path: Path) -> None:
    LocalDevices(tmp_path, parse_cluster("v100=2"))
    assert not (tmp_path / DEVICES_FILE).exists()
