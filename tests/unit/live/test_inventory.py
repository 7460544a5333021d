"""What a server makes of nodes that joined, left or changed, also while it was down."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.core.nodes import Nodes
from fairlead.live.nodes.inventory import NodeReconciler, require_matching_nodes
from fairlead.model.cluster import Cluster, Node
from fairlead.model.errors import UsageError
from fairlead.model.events import Event, NodeAdded, NodeLost, NodeReturned
from fairlead.store import Store

A, B, C = (Node(name, ("v100", "v100")) for name in "abc")


class Site:
    """A store that outlives servers, and the nodes that events have made known."""

    def __init__(self, path: Path) -> None:
        self.store = Store(f"sqlite:///{path / 'fairlead.db'}")
        token = self.store.acquire("test")
        assert token is not None
        self.token, self.nodes = token, Nodes(Cluster((A,)))

    def start(self, *found: Node) -> list[Event]:
        """Start a server whose engine has these nodes; return the events that follow."""
        inventory = NodeReconciler(self.store, Cluster(found))
        events = inventory.reconcile_all(0.0, self.nodes, found)
        for event in events:
            match event:
                case NodeAdded(_, node):
                    self.nodes.use(self.nodes.cluster.with_node(node))
                case NodeLost(_, name):
                    self.nodes.lose(name)
                case NodeReturned(_, name):
                    self.nodes.take_back(name)
        self.store.append(self.token, 1, [], inventory.changes())
        return events


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path)
    yield found
    found.store.close()


def test_the_cluster_of_the_first_start_is_the_one_before_all_events(site: Site) -> None:
    assert site.start(A) == []
    assert NodeReconciler(site.store, Cluster((B, A))).first == Cluster((A,))


def test_nodes_that_joined_while_no_server_ran_are_added_after_those_known(site: Site) -> None:
    site.start(A)
    assert site.start(C, A, B) == [NodeAdded(0.0, C), NodeAdded(0.0, B)]
    assert site.start(A, B, C) == []
    assert [node.id for node in site.nodes.cluster.nodes] == ["a", "c", "b"]


def test_a_node_that_the_engine_has_no_more_is_lost_and_taken_back_when_it_has(site: Site) -> None:
    site.start(A)
    site.start(A, B)
    assert site.start(A) == [NodeLost(0.0, "b")]
    assert site.start(A) == []
    assert site.start(A, B) == [NodeReturned(0.0, "b")]


def test_a_node_that_an_operator_drained_is_not_taken_back_by_a_restart(site: Site) -> None:
    site.start(A)
    site.start(A, B)
    site.nodes.lose("b")
    assert site.start(A, B) == []


def test_a_drained_node_that_the_engine_has_no_more_is_missing_until_it_has(site: Site) -> None:
    site.start(A)
    site.start(A, B)
    site.nodes.lose("b")
    assert site.start(A) == []
    assert NodeReconciler(site.store, Cluster((A,))).missing == {"b"}
    assert site.start(A, B) == [NodeReturned(0.0, "b")]
    assert NodeReconciler(site.store, Cluster((A, B))).missing == set()


def test_a_removed_node_never_returns(site: Site) -> None:
    site.start(A)
    site.start(A, B)
    site.nodes.remove("b")
    assert site.start(A) == []
    assert site.start(A, B) == []
    assert site.nodes.lasting.tolist() == [2]


def test_a_node_with_other_devices_than_before_is_not_used(site: Site) -> None:
    site.start(A)
    site.start(A, B)
    larger = Node("b", ("v100",) * 4)
    assert site.start(A, larger) == [NodeLost(0.0, "b")]
    assert site.start(A, B) == [NodeReturned(0.0, "b")]


def test_a_cluster_of_which_every_node_has_changed_is_refused() -> None:
    changed = Cluster((Node("a", ("v100", "k80", "k80")),))
    require_matching_nodes(Cluster((A,)), Cluster((A, B)))
    with pytest.raises(UsageError, match=r"v100=1,k80=2 now and had v100=2"):
        require_matching_nodes(Cluster((A,)), changed)
