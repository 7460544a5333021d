"""Parked processes run leases of their own order, on their devices and with their ranks."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.engines.base import LaunchOrder
from fairlead.engines.keeper import lease_dir
from fairlead.engines.keeper.parking import exit_reasons
from fairlead.engines.keeper.parking.parked import ParkedKeeper

Devices = tuple[int, ...]


def order(devices: Devices, lease: int = 1, **environment: str) -> LaunchOrder:
    return LaunchOrder(
        lease=lease,
        job="j",
        command=("train",),
        directory="/",
        environment={"FAIRLEAD_JOB_TOKEN": str(lease), **environment},
        devices=tuple(("node", number) for number in devices),
        accelerators=("v100",) * len(devices),
        visible=tuple(f"GPU-{number}" for number in devices),
        checkpoint_dir="/checkpoint",
        log_dir="/logs",
        max_processes=100 * len(devices),
    )


def parked(left: Devices, *, resizes: bool) -> ParkedKeeper:
    return ParkedKeeper(order(left), Path("/1"), 1, 0, 1.0, resizes=resizes)


def test_a_keeper_lives_until_it_lets_go_of_its_directory(tmp_path: Path) -> None:
    pidfd = os.pidfd_open(os.getpid())
    try:
        keeper = ParkedKeeper(order((0,)), tmp_path / "1", os.getpid(), pidfd, 1.0)
        assert not keeper.lives()  # its directory has been removed
        keeper.home.mkdir()
        lock = lease_dir.try_lock(keeper.home)
        assert lock is not None
        with lock:
            assert keeper.lives()
        assert not keeper.lives()
    finally:
        os.close(pidfd)


def adapted(left: Devices, new: LaunchOrder, *, resizes: bool) -> LaunchOrder | None:
    return parked(left, resizes=resizes).adapted(new)


@pytest.mark.parametrize(
    ("left", "new", "ranks"),
    [
        ((0, 1), (0, 1), (0, 1)),
        ((0, 1), (1, 0), (0, 1)),
        ((2, 3), (2,), (2,)),
        ((2, 3), (0, 1, 2, 3), (2, 3, 0, 1)),
        ((3,), (3, 0), (3, 0)),
    ],
)
def test_members_that_stay_keep_their_devices_and_ranks(
    left: Devices, new: Devices, ranks: Devices
) -> None:
    made = adapted(left, order(new, lease=2), resizes=True)
    assert made is not None
    assert made.devices == tuple(("node", number) for number in ranks)
    assert made.visible == tuple(f"GPU-{number}" for number in ranks)
    assert made.lease == 2
    is_same_size = len(left) == len(new)
    assert (adapted(left, order(new, lease=2), resizes=False) == made) == is_same_size


@pytest.mark.parametrize(
    ("left", "new"), [((0, 1), (1,)), ((0, 1), (1, 2)), ((0, 1), (0, 2, 3)), ((0,), (1,))]
)
def test_a_gang_is_restarted_where_a_rank_would_change_its_device(
    left: Devices, new: Devices
) -> None:
    assert adapted(left, order(new), resizes=True) is None


def test_a_gang_is_restarted_for_another_order() -> None:
    assert adapted((0, 1), order((0,), seed="2"), resizes=True) is None
    assert adapted((0, 1), replace(order((0,)), container="image"), resizes=True) is None
    assert adapted((0, 1), replace(order((0,)), may_stay=False), resizes=True) is None


@pytest.mark.parametrize(
    ("new", "resizes", "reason"),
    [
        (order((1, 0)), False, ""),
        (order((0, 1, 2)), True, ""),
        (order((1, 2)), True, exit_reasons.OTHER_DEVICES),
        (order((1,)), True, exit_reasons.OTHER_DEVICES),
        (order((0,)), False, exit_reasons.OTHER_SIZE),
        (order((0, 1), seed="2"), False, exit_reasons.OTHER_ORDER),
        (order((0, 1, 2), seed="2"), True, exit_reasons.OTHER_ORDER),
    ],
)
def test_the_reason_for_a_restart_is_known(new: LaunchOrder, resizes: bool, reason: str) -> None:
    assert parked((0, 1), resizes=resizes).obstacle(new) == reason


def test_the_reason_for_a_restart_makes_no_other_order() -> None:
    restarted = replace(order((0, 1)), restart_reason=exit_reasons.OTHER_DEVICES)
    left = ParkedKeeper(restarted, Path("/1"), 1, 0, 1.0)
    assert left.can_run(order((0, 1), lease=2))
