"""Checkpoints: committed whole or not at all, and never by a lease that is over."""

import json
import multiprocessing
import os
from pathlib import Path

import pytest

from fairlead.job import checkpoint
from fairlead.job.checkpoint import FencedError, Latest


def save(directory: Path, lease: int, steps: int, payload: bytes = b"x", ranks: int = 1) -> None:
    for rank in range(ranks):
        checkpoint.write(str(directory), lease, steps, rank, payload + str(rank).encode())
    checkpoint.commit(str(directory), lease, steps, ranks, wait_s=0.1)


def test_what_was_committed_last_is_read(tmp_path: Path) -> None:
    checkpoint.raise_fence(str(tmp_path), 5)
    assert checkpoint.latest(str(tmp_path)) is None
    assert checkpoint.read(str(tmp_path), 0) is None
    save(tmp_path, 5, 10, b"old")
    save(tmp_path, 5, 20, b"new", ranks=2)
    assert checkpoint.latest(str(tmp_path)) == Latest(5, 20, ("5-20.0.ckpt", "5-20.1.ckpt"))
    assert checkpoint.read(str(tmp_path), 1) == b"new1"
    assert not (tmp_path / "5-10.0.ckpt").exists()


def test_a_lease_behind_the_fence_changes_nothing(tmp_path: Path) -> None:
    checkpoint.raise_fence(str(tmp_path), 5)
    save(tmp_path, 5, 10, b"mine")
    checkpoint.raise_fence(str(tmp_path), 6)
    checkpoint.write(str(tmp_path), 5, 99, 0, b"late")
    with pytest.raises(FencedError):
        checkpoint.commit(str(tmp_path), 5, 99, 1)
    assert checkpoint.latest(str(tmp_path)) == Latest(5, 10, ("5-10.0.ckpt",))
    assert checkpoint.read(str(tmp_path), 0) == b"mine0"
    with pytest.raises(FencedError):
        checkpoint.raise_fence(str(tmp_path), 5)
    assert checkpoint.fence(str(tmp_path)) == 6


def test_a_file_that_a_later_lease_tidied_away_was_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.raise_fence(str(tmp_path), 5)
    rename = os.replace

    def too_late(source: str, target: str) -> None:
        if source.endswith("5-10.0.ckpt.tmp"):
            checkpoint.raise_fence(str(tmp_path), 6)
            save(tmp_path, 6, 10)
        rename(source, target)

    monkeypatch.setattr(os, "replace", too_late)
    with pytest.raises(FencedError):
        checkpoint.write(str(tmp_path), 5, 10, 0, b"late")
    assert checkpoint.latest(str(tmp_path)) == Latest(6, 10, ("6-10.0.ckpt",))
    with pytest.raises(FileNotFoundError):
        checkpoint.write(str(tmp_path / "none"), 7, 10, 0, b"nowhere")


def test_a_checkpoint_lacks_no_rank(tmp_path: Path) -> None:
    checkpoint.raise_fence(str(tmp_path), 1)
    save(tmp_path, 1, 3, ranks=2)
    checkpoint.write(str(tmp_path), 1, 4, 0, b"half")
    with pytest.raises(TimeoutError):
        checkpoint.commit(str(tmp_path), 1, 4, 2, wait_s=0.1)
    found = checkpoint.latest(str(tmp_path))
    assert found is not None
    assert found.steps == 3


def test_a_damaged_file_is_noticed(tmp_path: Path) -> None:
    checkpoint.raise_fence(str(tmp_path), 1)
    save(tmp_path, 1, 3, b"payload")
    path = tmp_path / "1-3.0.ckpt"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(OSError, match="damaged"):
        checkpoint.read(str(tmp_path), 0)


def test_a_crash_before_the_commit_leaves_the_old_one_in_force(tmp_path: Path) -> None:
    checkpoint.raise_fence(str(tmp_path), 1)
    save(tmp_path, 1, 3)
    (tmp_path / "latest.json.123.tmp").write_text('{"lease": 1, "st')
    checkpoint.write(str(tmp_path), 1, 4, 0, b"aside")
    found = checkpoint.latest(str(tmp_path))
    assert found is not None
    assert found.steps == 3


def _race(directory: str, lease: int, count: int) -> None:
    for steps in range(count):
        try:
            checkpoint.write(directory, lease, steps, 0, str(lease).encode())
            checkpoint.commit(directory, lease, steps, 1)
        except FencedError:
            return


def test_writers_that_race_leave_the_later_lease_in_force(tmp_path: Path) -> None:
    checkpoint.raise_fence(str(tmp_path), 1)
    early = multiprocessing.Process(target=_race, args=(str(tmp_path), 1, 10**9))
    early.start()
    try:
        while checkpoint.latest(str(tmp_path)) is None:
            pass
        checkpoint.raise_fence(str(tmp_path), 2)
        seen = checkpoint.latest(str(tmp_path))
        _race(str(tmp_path), 2, 20)
        early.join(10)
        assert early.exitcode == 0
    finally:
        early.kill()
    assert seen is not None
    found = json.loads((tmp_path / "latest.json").read_text())
    assert (found["lease"], found["steps"]) == (2, 19)
    assert checkpoint.read(str(tmp_path), 0) == b"2"


def test_what_is_counted_as_saved_is_flushed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer may have died between putting it in force and flushing the directory."""
    save(tmp_path, 1, 5)
    flushed: list[str] = []

    def note(file: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{file}"))

    monkeypatch.setattr(os, "fsync", note)
    found = checkpoint.settled(str(tmp_path))
    assert found is not None
    assert (found.steps, flushed) == (5, [str(tmp_path)])
    assert checkpoint.settled(str(tmp_path / "none")) is None


def test_a_users_own_files_are_left_alone(tmp_path: Path) -> None:
    names = ("model.ckpt", "last.ckpt", "epoch=3-step=100.ckpt", "1-2.ckpt", "a.leaves", "x.tmp")
    for name in names:
        (tmp_path / name).touch()
    checkpoint.raise_fence(str(tmp_path), 5)
    save(tmp_path, 5, 10)
    save(tmp_path, 5, 20)
    checkpoint.empty(str(tmp_path), 5)
    assert {path.name for path in tmp_path.iterdir()} == {*names, "fence", "lock"}
