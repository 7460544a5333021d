"""Clusters from plain text and YAML."""

from pathlib import Path

import pytest

from fairlead.files import format_cluster, read_cluster, write_cluster
from fairlead.model.cluster import Accelerator, Cluster, Node

YAML = """\
# two racks
nodes:
- id: big
  rack: r1
  repeat: 2
  devices: {h200-3g.71gb: 2, V100: 1}
- id: 08
  devices: [k80, V100, k80]
accelerators:
  V100: {memory_gib: 32}
  k80: {usd_per_hour: 0}
"""


def test_plain_text_keeps_names_and_order_with_one_node_per_accelerator() -> None:
    cluster = read_cluster("v100=36,P100=4,k80=8")
    assert cluster.count_by_name() == {"v100": 36, "P100": 4, "k80": 8}
    assert [len(node.devices) for node in cluster.nodes] == [36, 4, 8]


def test_slash_sets_devices_per_node_and_the_last_node_gets_the_rest() -> None:
    cluster = read_cluster(" v100 = 10/4 , k80=2")
    assert [len(node.devices) for node in cluster.nodes] == [4, 4, 2, 2]


def test_known_names_get_bundled_memory_and_price_in_any_case() -> None:
    cluster = read_cluster("V100=1,k80=1,mystery=1")
    assert cluster.usd_per_hour.tolist() == [0.74, 0.135, 0.0]
    assert cluster.memory_gib.tolist() == [16.0, 12.0, float("inf")]


def test_an_accelerator_with_no_devices_is_left_out() -> None:
    assert read_cluster("v100=0,k80=1").accelerators == ("k80",)


def test_yaml_gives_nodes_racks_repeats_and_details(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(YAML)
    cluster = read_cluster(str(path))
    assert cluster.nodes == (
        Node("big-0", ("h200-3g.71gb", "h200-3g.71gb", "V100"), "r1"),
        Node("big-1", ("h200-3g.71gb", "h200-3g.71gb", "V100"), "r1"),
        Node("08", ("k80", "V100", "k80")),
    )
    assert cluster.details["V100"] == Accelerator("V100", 32.0, 0.74)
    assert cluster.details["k80"] == Accelerator("k80", 12.0, 0.0)


def test_json_and_crlf_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_bytes(b'\xef\xbb\xbf{"nodes": [\r\n{"id": "a", "devices": {"v100": 2}}]}\r\n')
    assert read_cluster(path).count_by_name() == {"v100": 2}


@pytest.mark.parametrize("text", ["v100=36/4,k80=3/2", "v100=1", "a=7/3,b=2"])
def test_written_clusters_read_back_the_same(tmp_path: Path, text: str) -> None:
    cluster = read_cluster(text)
    path = tmp_path / "cluster.yaml.gz"
    write_cluster(cluster, path)
    assert read_cluster(path) == cluster


def test_equal_nodes_are_written_once() -> None:
    assert format_cluster(read_cluster("v100=400/4")).count("id:") == 1


def test_mixed_nodes_and_odd_numbers_are_written_as_they_are(tmp_path: Path) -> None:
    nodes = (
        Node("a-0", ("x", "y", "x")),
        Node("a-2", ("x", "y", "x"), "r"),
        Node("-0", ("x", "x", "y")),
        Node("b-0", ("y",)),
        Node("b-1", ("y",)),
        Node("empty", ()),
    )
    path = tmp_path / "cluster.yml"
    write_cluster(Cluster(nodes), path)
    assert read_cluster(path).nodes == nodes
