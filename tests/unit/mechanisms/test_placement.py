"""Placement keeps jobs where they are and gangs together."""

import numpy as np

from fairlead.model.cluster import Cluster
from fairlead.model.lease import Placement
from fairlead.model.profiles import Profiles
from fairlead.model.snapshot import Snapshot
from fairlead.placement import place_gangs, plan_moves, plan_transition


def snapshot(cluster: Cluster, gang: list[int], holds: list[int] | None = None) -> Snapshot:
    """Return a snapshot in which row r is job 10 + r and holds devices under lease 100 + r."""
    n, n_accelerators = len(gang), len(cluster.accelerators)
    held = np.array([holds if holds is not None else [-1] * len(cluster.node_of)])
    on, lease = np.full(n, -1), np.full(n, -1)
    for device, row in enumerate(held[0].tolist()):
        if row >= 0:
            on[row], lease[row] = cluster.accelerator_of[device], 100 + row
    return Snapshot(
        at=0.0,
        starts_at=0.0,
        cluster=cluster,
        capacity=cluster.counts,
        usable=np.arange(len(cluster.node_of)),
        tenants=(),
        profiles=Profiles(
            np.ones((n, n_accelerators)), np.array(gang), np.ones(n), np.zeros(n, dtype=np.int64)
        ),
        job=np.arange(n) + 10,
        profile=np.arange(n),
        arrival_at=np.zeros(n),
        total_steps=np.ones(n),
        steps=np.zeros(n),
        deadline_at=np.full(n, np.inf),
        priority=np.zeros(n),
        received_s=np.zeros((n, n_accelerators)),
        on=on,
        lease=lease,
        holds=held,
    )


def test_job_on_the_wanted_accelerator_keeps_its_devices() -> None:
    cluster = Cluster.of({"v100": 4}, per_node=2)
    stop, start = plan_moves(snapshot(cluster, [1, 1, 1], [1, -1, -1, 0]), np.array([0, 0, 0]))
    assert stop.tolist() == []
    (placed,) = start
    assert placed.job == 12
    assert placed.devices in ((1,), (2,))


def test_job_moves_when_it_wants_another_accelerator() -> None:
    cluster = Cluster.of({"v100": 1, "k80": 1})
    stop, start = plan_moves(snapshot(cluster, [1], [0, -1]), np.array([1]))
    assert stop.tolist() == [100]
    assert list(start) == [Placement(10, 0, (1,))]


def test_devices_of_those_who_stop_are_used_by_those_who_start() -> None:
    cluster = Cluster.of({"v100": 2})
    stop, start = plan_moves(snapshot(cluster, [2, 1, 1], [0, 0]), np.array([-1, 0, 0]))
    assert stop.tolist() == [100]
    assert sorted(d for p in start for d in p.devices) == [0, 1]


def test_large_gang_chooses_first_and_stays_on_one_node() -> None:
    cluster = Cluster.of({"v100": 8}, per_node=4)
    _, start = plan_moves(snapshot(cluster, [1, 1, 4]), np.array([0, 0, 0]))
    (large,) = [p for p in start if p.job == 12]
    assert len({int(cluster.node_of[d]) for d in large.devices}) == 1
    assert len(large.devices) == 4


def test_small_job_takes_the_tightest_node() -> None:
    cluster = Cluster.of({"v100": 4}, per_node=2)
    _, start = plan_moves(snapshot(cluster, [1, 1], [0, -1, -1, -1]), np.array([0, 0]))
    assert list(start) == [Placement(11, 0, (1,))]


def test_gang_larger_than_a_node_takes_the_nodes_with_most_room() -> None:
    cluster = Cluster.of({"v100": 6}, per_node=2)
    _, start = plan_moves(snapshot(cluster, [1, 4], [0, -1, -1, -1, -1, -1]), np.array([0, 0]))
    assert list(start) == [Placement(11, 0, (2, 3, 4, 5))]


def test_only_the_devices_offered_are_used() -> None:
    cluster = Cluster.of({"v100": 3})
    free = np.array([False, True, True])
    start = place_gangs(snapshot(cluster, [1, 1]), free, np.array([0]), np.array([0]))
    assert list(start) == [Placement(10, 0, (1,))]


def test_transition_keeps_what_stays_and_changes_the_rest() -> None:
    cluster = Cluster.of({"v100": 4})
    snap = snapshot(cluster, [2, 1, 1], [0, 0, 1, -1])
    wanted = [Placement(10, 0, (0, 1)), Placement(11, 0, (3,)), Placement(12, 0, (2,))]
    stop, start = plan_transition(snap, wanted)
    assert stop.tolist() == [101]
    assert {p.job for p in start} == {11, 12}
