"""Attacks with files in directories that jobs can write: they end their own lease and no other."""

import asyncio
import fcntl
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.attacks.hostile import HOSTILE, each_hostile, order, within

from fairlead.engines.base import Ended, LaunchOrder
from fairlead.engines.keeper import lease_dir
from fairlead.engines.ray import leases as ray_leases
from fairlead.engines.shared.multi_node import saved_steps
from fairlead.engines.shared.nodes.files import NodeFiles
from fairlead.engines.slurm import leases as slurm_leases
from fairlead.engines.slurm.lease_table import SlurmLeaseTable
from fairlead.job import checkpoint
from fairlead.untrusted_file import UnusableFileError

Make = Callable[[Path], None]


# -- reading ------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", each_hostile())
def test_hostile_files_of_a_lease_count_as_missing(tmp_path: Path, make: Make) -> None:
    for name in ("exit.json", "members.json", "progress.json", "stop", "order.json"):
        make(tmp_path / name)
    assert within(lambda: lease_dir.read_ended(tmp_path, 5)) is None
    assert within(lambda: lease_dir.read_members(tmp_path)) is None
    assert within(lambda: lease_dir.read_progress(tmp_path)) is None
    assert within(lambda: lease_dir.read_stop(tmp_path)) is None
    with pytest.raises(FileNotFoundError):
        within(lambda: lease_dir.read_order(tmp_path))


@pytest.mark.parametrize("make", each_hostile())
def test_the_end_of_a_lease_replaces_a_hostile_file(tmp_path: Path, make: Make) -> None:
    make(tmp_path / "exit.json")
    ended = Ended(5, "lost", None, "keeper died", (1,))
    within(lambda: lease_dir.write_ended(tmp_path, ended))
    assert lease_dir.read_ended(tmp_path, 5) == ended


def test_the_end_of_another_lease_is_ignored(tmp_path: Path) -> None:
    lease_dir.write_ended(tmp_path, Ended(6, "finished", 10.0))
    assert lease_dir.read_ended(tmp_path, 5) is None


@pytest.mark.parametrize("steps", [-1, 1e300, "3", True])
def test_an_end_with_impossible_steps_is_ignored(tmp_path: Path, steps: object) -> None:
    end = {"lease": 5, "ending": "left", "steps": steps, "message": "", "exit_codes": []}
    (tmp_path / "exit.json").write_text(json.dumps(end), encoding="ascii")
    assert lease_dir.read_ended(tmp_path, 5) is None


@pytest.mark.parametrize("name", ["fifo", "directory", "link", "endless"])
def test_a_hostile_lock_of_a_keeper_is_replaced(tmp_path: Path, name: str) -> None:
    HOSTILE[name](tmp_path / "alive")
    assert not within(lambda: lease_dir.is_alive(tmp_path))
    lock = within(lambda: lease_dir.try_lock(tmp_path))
    assert lock is not None
    lock.close()
    within(lambda: lease_dir.remove(tmp_path))
    assert not tmp_path.exists()


def test_other_names_in_the_directory_of_leases_are_ignored(tmp_path: Path) -> None:
    for name in ("5", "x", "²", "-1", "1" * 400):
        with_name = tmp_path / name[:200]
        with_name.mkdir()
    (tmp_path / "7").symlink_to(tmp_path / "5")
    (tmp_path / "8").touch()
    assert lease_dir.list_leases(tmp_path) == {5: tmp_path / "5"}


@pytest.mark.parametrize("make", each_hostile())
def test_a_hostile_checkpoint_directory_blocks_no_reader(tmp_path: Path, make: Make) -> None:
    made = order(tmp_path)
    directory = Path(made.checkpoint_dir)
    directory.mkdir(parents=True)
    for name in ("latest.json", "fence"):
        make(directory / name)
    with pytest.raises(UnusableFileError, match=r"latest\.json"):
        within(lambda: checkpoint.latest(str(directory)))
    assert within(lambda: saved_steps(made)) is None
    if make is HOSTILE["number"]:  # that is a fence
        return
    with pytest.raises(UnusableFileError, match="fence"):
        within(lambda: checkpoint.raise_fence(str(directory), 5))


@pytest.mark.parametrize("name", ["../../../admin.token", "/etc/shadow", "x", "1-1.0.ckpt/.."])
def test_a_checkpoint_names_only_its_own_files(tmp_path: Path, name: str) -> None:
    latest = {"lease": 5, "steps": 1, "files": [name]}
    (tmp_path / "latest.json").write_text(json.dumps(latest), encoding="ascii")
    with pytest.raises(UnusableFileError, match="files"):
        checkpoint.latest(str(tmp_path))


@pytest.mark.parametrize("name", ["fifo", "link", "endless", "directory"])
def test_a_hostile_lock_of_a_checkpoint_is_an_error(tmp_path: Path, name: str) -> None:
    HOSTILE[name](tmp_path / "lock")
    with pytest.raises(UnusableFileError, match="lock"):
        within(lambda: checkpoint.raise_fence(str(tmp_path), 5))


def test_a_lock_that_a_job_holds_is_not_waited_for_without_end(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(checkpoint.LockHeldError):
            within(lambda: checkpoint.raise_fence(str(tmp_path), 5, wait_s=0.1))
    checkpoint.raise_fence(str(tmp_path), 5, wait_s=0.0)


@pytest.mark.parametrize("name", ["fifo", "link", "endless", "directory", "huge"])
def test_hostile_files_on_a_node_are_not_transferred(tmp_path: Path, name: str) -> None:
    files = NodeFiles(tmp_path)
    path = tmp_path / checkpoint_path("1-1.0.ckpt")
    path.parent.mkdir(parents=True)
    HOSTILE[name](path)
    if name != "huge":
        assert within(lambda: files.read(checkpoint_path("1-1.0.ckpt"), 0, 10)) == b""
        assert within(lambda: files.missing("j1", ["1-1.0.ckpt"])) == ["1-1.0.ckpt"]
    (path.parent / "5-x.0.ckpt").touch()
    (path.parent / f"5-{'9' * 200}.0.ckpt").touch()
    assert files.new_checkpoint(order(tmp_path)) is None


def test_nothing_is_written_through_a_link_on_a_node(tmp_path: Path) -> None:
    home, victim = tmp_path / "home", tmp_path / "home" / "victim"
    files, path = NodeFiles(home), home / checkpoint_path("1-1.0.ckpt")
    path.parent.mkdir(parents=True)
    path.symlink_to(victim)
    with pytest.raises(OSError, match="usable"):
        files.write(checkpoint_path("1-1.0.ckpt"), 0, b"x")
    with pytest.raises(OSError, match="usable"):
        files.mark_received("j1", ["1-1.0.ckpt"])
    assert not victim.exists()


def checkpoint_path(name: str) -> str:
    return f"jobs/j1/checkpoint/{name}"


# -- Slurm --------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", each_hostile())
def test_hostile_files_of_a_part_on_slurm_end_that_part(tmp_path: Path, make: Make) -> None:
    made = order(tmp_path, progress_pattern="(x)")
    directory = tmp_path / "leases" / "5"
    (part,) = parts = slurm_leases.write(directory, made, "fairlead-5", {})
    for name in ("exit.json", "members.json", "progress.json", "keeper.log", "alive", "carrying"):
        make(part.directory / name)
    Path(made.checkpoint_dir).mkdir(parents=True)
    for name in ("latest.json", "fence"):
        make(Path(made.checkpoint_dir) / name)
    lease = slurm_leases.TrackedSlurmLease(made, directory, parts, 0.0)
    files = within(part.read)
    assert files is not None
    assert files.ended is None
    assert within(lease.printed_steps) is None
    within(part.last_output_line)
    within(lambda: lease.declare_lost(part, "lost", "no answer"))
    ended = within(lease.end)
    assert ended is not None
    assert ended.ending == "lost"
    assert within(lambda: slurm_leases.remove(directory))


@contextmanager
def lock_held(made: LaunchOrder) -> Iterator[None]:
    """Hold the lock of a job's checkpoints, as a hostile job does."""
    directory = Path(made.checkpoint_dir)
    directory.mkdir(parents=True)
    with (directory / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


@pytest.fixture
def slurm_lease(tmp_path: Path) -> slurm_leases.TrackedSlurmLease:
    made, directory = order(tmp_path), tmp_path / "leases" / "5"
    parts = slurm_leases.write(directory, made, "fairlead-5", {})
    return slurm_leases.TrackedSlurmLease(made, directory, parts, 0.0)


def test_a_held_lock_does_not_keep_a_part_on_slurm_from_its_end(
    slurm_lease: slurm_leases.TrackedSlurmLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_leases, "_LOCK_TIMEOUT_S", 0.05)
    (part,) = slurm_lease.parts
    with lock_held(slurm_lease.order):
        within(lambda: slurm_lease.declare_lost(part, "lost", "no answer"))
    assert part.ended is not None


def test_the_log_of_a_keeper_is_not_read_through_a_link(tmp_path: Path) -> None:
    (part,) = slurm_leases.write(tmp_path / "5", order(tmp_path), "fairlead-5", {})
    (tmp_path / "admin.token").write_text("secret", encoding="ascii")
    (part.directory / "keeper.log").symlink_to(tmp_path / "admin.token")
    assert part.last_output_line() == ""


# -- the event loop -----------------------------------------------------------------------------


class _NoSlurm:
    """Slurm without jobs."""

    async def cancel(self, name: str) -> None:
        """Do nothing."""


def test_a_lock_that_a_job_holds_does_not_block_the_server_on_slurm(
    slurm_lease: slurm_leases.TrackedSlurmLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_leases, "_LOCK_TIMEOUT_S", 60.0)
    (part,), leases = slurm_lease.parts, slurm_lease.directory.parent
    table = SlurmLeaseTable(cast("Any", _NoSlurm()), "fairlead-", leases)

    async def declare_lost() -> None:
        with lock_held(slurm_lease.order):
            lost = table.declare_part_lost(slurm_lease, part, "lost", "no answer")
            task = asyncio.create_task(lost)
            await asyncio.sleep(0.05)
            assert not task.done()
        await task

    within(lambda: asyncio.run(declare_lost()))
    assert part.ended is not None
    assert checkpoint.fence(slurm_lease.order.checkpoint_dir) == slurm_lease.order.lease + 1


@pytest.fixture
def ray_lease(tmp_path: Path) -> ray_leases.TrackedRayLease:
    return ray_leases.write(tmp_path / "leases" / "5", order(tmp_path))


def test_a_lock_that_a_job_holds_does_not_block_the_server_on_ray(
    ray_lease: ray_leases.TrackedRayLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    (part,) = ray_lease.parts
    waits: list[float] = []
    with lock_held(ray_lease.order), monkeypatch.context() as patch:
        times = SimpleNamespace(monotonic=time.monotonic, sleep=waits.append)
        patch.setattr(checkpoint, "time", times)
        within(lambda: ray_lease.declare_lost(part, "lost", "no answer"))
    assert waits == []
    assert part.ended is not None


def test_writers_on_a_lost_ray_node_are_fenced_once_they_release_the_lock(
    ray_lease: ray_leases.TrackedRayLease,
) -> None:
    (part,), made = ray_lease.parts, ray_lease.order
    with lock_held(made), pytest.raises(checkpoint.LockHeldError):
        ray_lease.declare_lost(part, "lost", "no answer", again=True)
    assert part.ended is None
    ray_lease.declare_lost(part, "lost", "no answer", again=True)
    assert part.ended is not None
    assert checkpoint.fence(made.checkpoint_dir) == made.lease + 1


def test_a_lease_on_a_lost_ray_node_ends_although_its_job_keeps_the_lock(
    ray_lease: ray_leases.TrackedRayLease,
) -> None:
    (part,) = ray_lease.parts
    with lock_held(ray_lease.order):
        for _ in range(20):
            with suppress(checkpoint.LockHeldError):
                ray_lease.declare_lost(part, "lost", "no answer", again=True)
                break
    assert part.ended is not None
