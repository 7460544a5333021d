"""Reconciliation with nodes that joined, left or changed while the server was up or down."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.core.nodes import NodeTable
from fairlead.live.nodes.inventory import NodeReconciler, require_matching_nodes
from fairlead.model.cluster import Cluster, Node
from fairlead.model.errors import UsageError
from fairlead.model.events import Event, NodeAdded, NodeLost, NodeReturned
from fairlead.store import Store

A, B, C = (Node(name, ("v100", "v100")) for name in "abc")


class Site:
    """A store that outlives servers, and the nodes known from events."""

    def __init__(self, path: Path) -> None:
        self.store = Store(f"sqlite:///{path / 'fairlead.db'}")
        token = self.store.acquire("test")
        assert token is not None
        self.token, self.nodes = token, NodeTable(Cluster((A,)))

    def start(self, *present: Node) -> list[Event]:
        """Start a server whose engine has these nodes; return the resulting events."""
        inventory = NodeReconciler(self.store, Cluster(present))
        events = inventory.reconcile_all(0.0, self.nodes, present)
        for event in events:
            match event:
                case NodeAdded(_, node):
                    self.nodes.extend_cluster(self.nodes.cluster.with_node(node))
                case NodeLost(_, name):
                    self.nodes.mark_lost(name)
                case NodeReturned(_, name):
                    self.nodes.mark_returned(name)
        self.store.append(self.token, 1, [], inventory.changes())
        return events


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.store.close()


def test_initial_cluster_is_that_of_the_first_start(site: Site) -> None:
    assert site.start(A) == []
    assert NodeReconciler(site.store, Cluster((B, A))).initial_cluster == Cluster((A,))


def test_nodes_that_joined_during_downtime_get_the_next_indices(site: Site) -> None:
    site.start(A)
    assert site.start(C, A, B) == [NodeAdded(0.0, C), NodeAdded(0.0, B)]
    assert site.start(A, B, C) == []
    assert [node.id for node in site.nodes.cluster.nodes] == ["a", "c", "b"]


def test_missing_node_is_lost_and_returns_with_the_engine_inventory(site: Site) -> None:
    site.start(A)
    site.start(A, B)
    assert site.start(A) == [NodeLost(0.0, "b")]
    assert site.start(A) == []
    assert site.start(A, B) == [NodeReturned(0.0, "b")]


def test_restart_does_not_return_a_drained_node(site: Site) -> None:
    site.start(A)
    site.start(A, B)
    site.nodes.mark_lost("b")
    assert site.start(A, B) == []


def test_drained_node_can_be_missing_until_the_engine_has_it_again(site: Site) -> None:
    site.start(A)
    site.start(A, B)
    site.nodes.mark_lost("b")
    assert site.start(A) == []
    assert NodeReconciler(site.store, Cluster((A,))).missing == {"b"}
    assert site.start(A, B) == [NodeReturned(0.0, "b")]
    assert NodeReconciler(site.store, Cluster((A, B))).missing == set()


def test_removed_node_never_returns(site: Site) -> None:
    site.start(A)
    site.start(A, B)
    site.nodes.mark_removed("b")
    assert site.start(A) == []
    assert site.start(A, B) == []
    assert site.nodes.permanent_devices.tolist() == [2]


def test_restored_node_returns_once_the_engine_has_it(site: Site) -> None:
    site.start(A)
    site.start(A, B)
    site.nodes.mark_removed("b")
    site.start(A)
    assert NodeReconciler(site.store, Cluster((A,))).missing == {"b"}
    site.nodes.mark_restored("b")
    assert site.start(A) == []
    assert site.start(A, B) == [NodeReturned(0.0, "b")]
    assert site.nodes.permanent_devices.tolist() == [4]


def test_node_with_changed_devices_is_not_used(site: Site) -> None:
    site.start(A)
    site.start(A, B)
    larger = Node("b", ("v100",) * 4)
    assert site.start(A, larger) == [NodeLost(0.0, "b")]
    assert site.start(A, B) == [NodeReturned(0.0, "b")]


def test_cluster_whose_nodes_have_all_changed_is_rejected() -> None:
    changed = Cluster((Node("a", ("v100", "k80", "k80")),))
    require_matching_nodes(Cluster((A,)), Cluster((A, B)))
    with pytest.raises(UsageError, match=r"v100=1,k80=2 now and had v100=2"):
        require_matching_nodes(Cluster((A,)), changed)
