"""Jobs served in an order: whole gangs, running jobs kept in place."""

from collections.abc import Sequence

import numpy as np

from fairlead.mechanisms._queues.serving import (
    by_arrival,
    holds_devices,
    idle_devices,
    serve_idle_devices,
    serve_preemptively,
)
from fairlead.model.cluster import Cluster
from fairlead.model.plan import ABSENT
from fairlead.model.profiles import Profiles
from fairlead.model.snapshot import Snapshot

V100, K80 = 0, 1


def snapshot(
    gangs: Sequence[int],
    *,
    devices: tuple[int, int] = (2, 2),
    on: Sequence[int] | None = None,
    speed: Sequence[tuple[float, float]] | None = None,
    down: Sequence[int] = (),
    arrival_at: Sequence[float] | None = None,
) -> Snapshot:
    """Return jobs with these gangs; those ``on`` an accelerator hold its first free devices."""
    n = len(gangs)
    cluster = Cluster.of({"v100": devices[0], "k80": devices[1]}, per_node=1)
    usable = np.setdiff1d(np.arange(sum(devices)), np.array(down, dtype=np.int64))
    where = np.array(on if on is not None else [ABSENT] * n)
    holds = np.full((1, sum(devices)), ABSENT)
    for row, accelerator in enumerate(where.tolist()):
        if accelerator >= 0:
            free = [
                d for d in usable if cluster.accelerator_of[d] == accelerator and holds[0, d] < 0
            ]
            holds[0, free[: gangs[row]]] = row
    return Snapshot(
        at=0.0,
        starts_at=0.0,
        cluster=cluster,
        capacity=np.bincount(cluster.accelerator_of[usable], minlength=2),
        usable=usable,
        tenants=(),
        profiles=Profiles(
            speed=np.array(speed or [(2.0, 1.0)] * n),
            gang=np.array(gangs),
            weight=np.ones(n),
            tenant=np.zeros(n, dtype=np.int64),
        ),
        job=np.arange(n),
        profile=np.arange(n),
        arrival_at=np.array(arrival_at or [0.0] * n),
        total_steps=np.full(n, 100.0),
        steps=np.zeros(n),
        deadline_at=np.full(n, np.inf),
        priority=np.zeros(n),
        received_s=np.zeros((n, 2)),
        on=where,
        lease=np.where(where >= 0, np.arange(n), ABSENT),
        holds=holds,
    )


def rows(*order: int) -> np.ndarray:
    return np.array(order, dtype=np.int64)


def test_jobs_are_served_in_order_until_devices_are_used_up() -> None:
    snap = snapshot([1] * 6)
    wanted = serve_preemptively(snap, rows(5, 4, 3, 2, 1, 0))
    assert (wanted[2:] >= 0).all()
    assert wanted[:2].tolist() == [-1, -1]


def test_gang_that_does_not_fit_waits_and_lets_others_pass() -> None:
    wanted = serve_preemptively(snapshot([2, 2, 1, 1], devices=(3, 1)), rows(0, 1, 2, 3))
    assert wanted[1] == -1
    assert (wanted[[0, 2, 3]] >= 0).all()


def test_head_of_the_order_takes_its_gang_from_those_behind_it() -> None:
    snap = snapshot([1, 1, 1, 1, 2], on=[V100, V100, K80, K80, -1])
    wanted = serve_preemptively(snap, rows(4, 0, 2, 1, 3))
    assert wanted[4] >= 0
    assert np.count_nonzero(wanted >= 0) == 3


def test_jobs_that_go_on_stay_where_they_are() -> None:
    snap = snapshot([1, 1, 1, 1], on=[K80, K80, V100, -1])
    wanted = serve_preemptively(snap, rows(3, 2, 1, 0))
    assert wanted.tolist() == [K80, K80, V100, V100]


def test_jobs_move_only_where_a_gang_needs_their_accelerator_whole() -> None:
    snap = snapshot([1, 1, 2], on=[V100, K80, -1])
    wanted = serve_preemptively(snap, rows(2, 0, 1))
    assert (wanted >= 0).all()
    assert wanted[0] == wanted[1] != wanted[2]


def test_without_speeds_a_job_takes_the_accelerator_with_most_left() -> None:
    assert serve_preemptively(snapshot([1], devices=(2, 3)), rows(0)).tolist() == [K80]


def test_with_speeds_it_takes_the_fastest_with_room_and_moves_there() -> None:
    snap = snapshot([1, 1], devices=(1, 3), on=[K80, -1])
    assert serve_preemptively(snap, rows(0, 1), fastest=True).tolist() == [V100, K80]


def test_job_is_never_put_where_it_cannot_run() -> None:
    snap = snapshot([1, 1, 1], devices=(1, 3), speed=[(1.0, 0.0)] * 3)
    assert serve_preemptively(snap, rows(0, 1, 2)).tolist() == [V100, -1, -1]
    assert serve_preemptively(snap, rows(0, 1, 2), fastest=True).tolist() == [V100, -1, -1]


def test_only_devices_that_are_up_are_given() -> None:
    snap = snapshot([1] * 4, down=[0, 2])
    assert np.count_nonzero(serve_preemptively(snap, rows(0, 1, 2, 3)) >= 0) == 2


def test_refill_starts_those_who_hold_nothing_on_idle_devices_only() -> None:
    snap = snapshot([1, 2, 1], on=[V100, -1, -1])
    idle = idle_devices(snap)
    assert idle.tolist() == [1, 2, 3]
    more = serve_idle_devices(snap, rows(0, 1, 2), idle)
    assert {p.job: p.devices for p in more} == {1: (2, 3), 2: (1,)}


def test_devices_that_wait_for_a_job_are_idle_for_the_next_plan() -> None:
    snap = snapshot([1, 1], on=[V100, -1])
    snap.holds[0, 1] = 1  # row 1 waits for device 1
    assert idle_devices(snap).tolist() == [1, 2, 3]
    assert holds_devices(snap).tolist() == [True, True]


def test_arrival_decides_before_submission() -> None:
    snap = snapshot([1, 1, 1], arrival_at=[5.0, 1.0, 5.0])
    assert by_arrival(snap).tolist() == [1, 0, 2]
