"""Placement keeps jobs where they are and gangs together."""

import numpy as np

from fairlead.model.cluster import Cluster
from fairlead.model.plan import nobody
from fairlead.model.snapshot import Profiles, Snapshot
from fairlead.placement import place


def snapshot(cluster: Cluster, gang: list[int], holds: np.ndarray | None = None) -> Snapshot:
    n, kinds = len(gang), len(cluster.accelerators)
    return Snapshot(
        at=0.0,
        starts_at=0.0,
        cluster=cluster,
        capacity=cluster.counts,
        usable=np.arange(len(cluster.node_of)),
        tenants=(),
        profiles=Profiles(
            np.ones((n, kinds)), np.array(gang), np.ones(n), np.zeros(n, dtype=np.int64)
        ),
        job=np.arange(n) + 10,
        profile=np.arange(n),
        arrival_at=np.zeros(n),
        total_steps=np.ones(n),
        steps=np.zeros(n),
        deadline_at=np.full(n, np.inf),
        priority=np.zeros(n),
        received_s=np.zeros((n, kinds)),
        holds=nobody(len(cluster.node_of)) if holds is None else holds,
    )


def test_job_on_the_wanted_accelerator_keeps_its_devices() -> None:
    cluster = Cluster.of({"v100": 4}, per_node=2)
    holds = np.array([[1, -1, -1, 0]])
    placed = place(snapshot(cluster, [1, 1, 1], holds), np.arange(4), np.array([0, 0, 0]))
    assert placed[0, 0] == 11
    assert placed[0, 3] == 10
    assert 12 in placed[0, 1:3]


def test_job_moves_when_it_wants_another_accelerator() -> None:
    cluster = Cluster.of({"v100": 1, "k80": 1})
    placed = place(snapshot(cluster, [1], np.array([[0, -1]])), np.arange(2), np.array([1]))
    assert placed.tolist() == [[-1, 10]]


def test_large_gang_chooses_first_and_stays_on_one_node() -> None:
    cluster = Cluster.of({"v100": 8}, per_node=4)
    placed = place(snapshot(cluster, [1, 1, 4]), np.arange(8), np.array([0, 0, 0]))
    where = (placed[0] == 12).nonzero()[0]
    assert len(set(cluster.node_of[where].tolist())) == 1
    assert len(where) == 4


def test_small_job_takes_the_tightest_node() -> None:
    cluster = Cluster.of({"v100": 4}, per_node=2)
    holds = np.array([[0, -1, -1, -1]])
    placed = place(snapshot(cluster, [1, 1], holds), np.arange(4), np.array([0, 0]))
    assert placed[0].tolist() == [10, 11, -1, -1]


def test_gang_larger_than_a_node_takes_the_nodes_with_most_room() -> None:
    cluster = Cluster.of({"v100": 6}, per_node=2)
    holds = np.array([[0, -1, -1, -1, -1, -1]])
    placed = place(snapshot(cluster, [1, 4], holds), np.arange(6), np.array([0, 0]))
    assert placed[0].tolist() == [10, -1, 11, 11, 11, 11]


def test_only_the_devices_offered_are_used() -> None:
    cluster = Cluster.of({"v100": 3})
    placed = place(snapshot(cluster, [1, 1]), np.array([1, 2]), np.array([0, -1]))
    assert placed.tolist() == [[-1, 10, -1]]
