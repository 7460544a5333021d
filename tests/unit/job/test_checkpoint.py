"""Checkpoints: committed whole or not at all, and never by a fenced lease."""

import json
import multiprocessing
import os
from pathlib import Path

import pytest

from fairlead import failpoints
from fairlead.job import checkpoint
from fairlead.job.checkpoint import FencedError
from fairlead.job.committed import CommittedCheckpoint


def save(directory: Path, lease: int, steps: int, payload: bytes = b"x", ranks: int = 1) -> None:
    for rank in range(ranks):
        checkpoint.write(str(directory), lease, steps, rank, payload + str(rank).encode())
    checkpoint.commit(str(directory), lease, steps, ranks, wait_s=0.1)


def test_the_last_commit_is_read(tmp_path: Path) -> None:
    checkpoint.raise_fence(str(tmp_path), 5)
    assert checkpoint.latest(str(tmp_path)) is None
    assert checkpoint.read(str(tmp_path), 0) is None
    save(tmp_path, 5, 10, b"old")
    save(tmp_path, 5, 20, b"new", ranks=2)
    assert checkpoint.latest(str(tmp_path)) == CommittedCheckpoint(
        5, 20, ("5-20.0.ckpt", "5-20.1.ckpt")
    )
    assert checkpoint.read(str(tmp_path), 1) == b"new1"
    assert not (tmp_path / "5-10.0.ckpt").exists()


def test_a_fenced_lease_changes_nothing(tmp_path: Path) -> None:
    checkpoint.raise_fence(str(tmp_path), 5)
    save(tmp_path, 5, 10, b"early")
    checkpoint.raise_fence(str(tmp_path), 6)
    checkpoint.write(str(tmp_path), 5, 99, 0, b"late")
    with pytest.raises(FencedError):
        checkpoint.commit(str(tmp_path), 5, 99, 1)
    assert checkpoint.latest(str(tmp_path)) == CommittedCheckpoint(5, 10, ("5-10.0.ckpt",))
    assert checkpoint.read(str(tmp_path), 0) == b"early0"
    with pytest.raises(FencedError):
        checkpoint.raise_fence(str(tmp_path), 5)
    assert checkpoint.fence(str(tmp_path)) == 6


def test_a_writer_whose_file_a_later_lease_removed_is_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.raise_fence(str(tmp_path), 5)
    rename = os.replace

    def too_late(source: str, target: str) -> None:
        if source.endswith(f"5-10.0.ckpt.{os.getpid()}.tmp"):
            checkpoint.raise_fence(str(tmp_path), 6)
            save(tmp_path, 6, 10)
        rename(source, target)

    monkeypatch.setattr(os, "replace", too_late)
    with pytest.raises(FencedError):
        checkpoint.write(str(tmp_path), 5, 10, 0, b"late")
    assert checkpoint.latest(str(tmp_path)) == CommittedCheckpoint(6, 10, ("6-10.0.ckpt",))
    with pytest.raises(FileNotFoundError):
        checkpoint.write(str(tmp_path / "none"), 7, 10, 0, b"nowhere")


def test_a_checkpoint_is_committed_only_with_all_ranks(tmp_path: Path) -> None:
    checkpoint.raise_fence(str(tmp_path), 1)
    save(tmp_path, 1, 3, ranks=2)
    checkpoint.write(str(tmp_path), 1, 4, 0, b"half")
    with pytest.raises(TimeoutError):
        checkpoint.commit(str(tmp_path), 1, 4, 2, wait_s=0.1)
    committed = checkpoint.latest(str(tmp_path))
    assert committed is not None
    assert committed.steps == 3


def test_a_damaged_file_is_detected(tmp_path: Path) -> None:
    checkpoint.raise_fence(str(tmp_path), 1)
    save(tmp_path, 1, 3, b"payload")
    path = tmp_path / "1-3.0.ckpt"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(OSError, match="damaged"):
        checkpoint.read(str(tmp_path), 0)


def test_a_crash_before_the_commit_keeps_the_old_checkpoint(tmp_path: Path) -> None:
    checkpoint.raise_fence(str(tmp_path), 1)
    save(tmp_path, 1, 3)
    (tmp_path / "latest.json.123.tmp").write_text('{"lease": 1, "st')
    checkpoint.write(str(tmp_path), 1, 4, 0, b"aside")
    committed = checkpoint.latest(str(tmp_path))
    assert committed is not None
    assert committed.steps == 3


def _race(directory: str, lease: int, count: int) -> None:
    for steps in range(count):
        try:
            checkpoint.write(directory, lease, steps, 0, str(lease).encode())
            checkpoint.commit(directory, lease, steps, 1)
        except FencedError:
            return


def test_of_racing_writers_the_later_lease_wins(tmp_path: Path) -> None:
    checkpoint.raise_fence(str(tmp_path), 1)
    early = multiprocessing.Process(target=_race, args=(str(tmp_path), 1, 10**9))
    early.start()
    try:
        while checkpoint.latest(str(tmp_path)) is None:
            pass
        checkpoint.raise_fence(str(tmp_path), 2)
        seen = checkpoint.latest(str(tmp_path))
        _race(str(tmp_path), 2, 20)
        early.join(60)
        assert early.exitcode == 0
    finally:
        early.kill()
    assert seen is not None
    content = json.loads((tmp_path / "latest.json").read_text())
    assert (content["lease"], content["steps"]) == (2, 19)
    assert checkpoint.read(str(tmp_path), 0) == b"2"


def test_steps_count_as_saved_once_their_commit_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer may have died between the commit and the sync of the directory."""
    save(tmp_path, 1, 5)
    synced: list[str] = []

    def record(file: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{file}"))

    monkeypatch.setattr(os, "fsync", record)
    committed = checkpoint.durable_latest(str(tmp_path))
    assert committed is not None
    assert (committed.steps, synced) == (5, [str(tmp_path)])
    assert checkpoint.durable_latest(str(tmp_path / "none")) is None


def test_a_process_forked_during_a_commit_does_not_keep_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread commits while the program starts the workers of its loader."""
    context = multiprocessing.get_context("fork")
    ends = context.Event()
    worker = context.Process(target=ends.wait)

    def fork(point: str) -> None:
        if point == "job.commit.locked":
            worker.start()

    monkeypatch.setattr(failpoints, "point", fork)
    checkpoint.raise_fence(str(tmp_path), 1)
    save(tmp_path, 1, 5)
    try:
        assert worker.is_alive()
        checkpoint.raise_fence(str(tmp_path), 2, wait_s=0.0)
    finally:
        ends.set()
        worker.join()


def test_the_users_files_stay(tmp_path: Path) -> None:
    names = ("model.ckpt", "last.ckpt", "epoch=3-step=100.ckpt", "1-2.ckpt", "a.leaves", "x.tmp")
    for name in names:
        (tmp_path / name).touch()
    checkpoint.raise_fence(str(tmp_path), 5)
    save(tmp_path, 5, 10)
    save(tmp_path, 5, 20)
    checkpoint.remove_copy(str(tmp_path), 5)
    assert {path.name for path in tmp_path.iterdir()} == {*names, "fence", "lock"}
