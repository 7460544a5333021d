"""Attacks on the files that servers and node agents replace, transfer and remove."""

import asyncio
import fcntl
import os
from pathlib import Path

import pytest
from tests.attacks.hostile import order, within

from fairlead import untrusted_file
from fairlead.atomic_file import replace_file
from fairlead.engines.ray import leases as ray_leases
from fairlead.engines.ray.node_agent import NodeAgent
from fairlead.engines.ray.transfer import RayTransfer
from fairlead.engines.shared.nodes import files
from fairlead.engines.shared.nodes.files import CheckpointSaved, NodeFiles
from fairlead.job import checkpoint
from fairlead.job.checkpoint import FencedError, LockHeldError

_DEPTH = 3000
"""directories in each other, more than calls may nest and files may be open"""


def test_a_directory_instead_of_a_temporary_file_stops_no_replacement(tmp_path: Path) -> None:
    temporary = tmp_path / f"stop.{os.getpid()}.tmp"
    (temporary / "inside").mkdir(parents=True)
    replace_file(tmp_path / "stop", b"new")
    assert (tmp_path / "stop").read_bytes() == b"new"
    assert sorted(os.listdir(tmp_path)) == ["stop", temporary.name]


def test_a_directory_of_any_depth_is_removed_and_links_lead_nowhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    (tmp_path / "lease").mkdir()
    at = os.open(tmp_path / "lease", os.O_RDONLY)
    for _ in range(_DEPTH):
        os.symlink(outside, "link", dir_fd=at)
        os.mkdir("d", dir_fd=at)
        deeper = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = deeper
    os.close(at)
    untrusted_file.remove_tree(tmp_path / "lease")
    assert os.listdir(tmp_path) == ["outside"]
    assert (outside / "precious").exists()


def test_a_held_lock_on_a_node_is_the_job_s_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_LOCK_TIMEOUT_S", 0.1)
    directory = tmp_path / "jobs/j1/checkpoint"
    directory.mkdir(parents=True)

    async def install() -> object:
        return await NodeAgent().node_files(str(tmp_path), "install", "j1", 5, None)

    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        answer = within(lambda: asyncio.run(install()))
    assert isinstance(answer, LockHeldError)
    (directory / "fence").write_text("99", encoding="ascii")
    answer = asyncio.run(install())
    assert isinstance(answer, FencedError)
    assert answer.fence == 99


def test_a_damaged_checkpoint_is_not_committed_and_not_fetched_for_ever(tmp_path: Path) -> None:
    """The file on the node is damaged, so that every copy would be."""
    node, made = NodeFiles(tmp_path / "n1"), order(tmp_path / "server")
    lease = ray_leases.write(tmp_path / "lease", made)
    where = tmp_path / "n1/jobs/j1/checkpoint"
    where.mkdir(parents=True)
    (where / "5-10.0.ckpt").write_text("0" * 64 + "not the payload", encoding="ascii")

    async def call(_: str, method: str, *arguments: object) -> object:
        return getattr(node, method)(*arguments)

    transfer = RayTransfer(call, lambda _: str(tmp_path / "n1"))
    checkpoint.raise_fence(made.checkpoint_dir, 5)
    saved = CheckpointSaved(5, 10, committed=True)
    asyncio.run(transfer.download_checkpoint(lease, lease.parts[0], saved))
    assert checkpoint.latest(made.checkpoint_dir) is None


def test_endless_output_is_copied_in_bounded_pieces(tmp_path: Path) -> None:
    made = order(tmp_path / "server")
    lease = ray_leases.write(tmp_path / "lease", made)
    chunks = 0

    async def call(_: str, __: str, *arguments: object) -> object:
        nonlocal chunks
        chunks += 1
        assert chunks < 1000, "it is copied for ever"
        return arguments[1], b"x" * 100

    transfer = RayTransfer(call, lambda _: str(tmp_path / "n1"))
    asyncio.run(transfer.download_logs(lease, lease.parts[0], has_ended=False))
    log = Path(made.log_dir) / "5.0.log"
    assert log.stat().st_size == 100 * chunks
