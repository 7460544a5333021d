"""Checkpoints are data: a pickle in any file that is loaded runs nothing."""

import hashlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fairlead.engines.keeper import lease_dir
from fairlead.job import checkpoint
from fairlead.job.committed import CommittedCheckpoint
from fairlead.untrusted_file import UnusableFileError


class Evil:
    """Makes a directory when it is unpickled."""

    def __init__(self, ran: Path) -> None:
        self.ran = ran

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.ran),)


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    return tmp_path / "ran"


@pytest.fixture
def evil(ran: Path) -> bytes:
    content = pickle.dumps({"model": Evil(ran)})
    pickle.loads(content)  # it works
    ran.rmdir()
    return content


def test_the_job_library_runs_nothing_from_a_checkpoint(
    tmp_path: Path, evil: bytes, ran: Path
) -> None:
    directory = str(tmp_path / "checkpoint")
    checkpoint.raise_fence(directory, 1)
    checkpoint.write(directory, 1, 10, 0, evil)
    checkpoint.commit(directory, 1, 10, 1)
    environment = {
        **os.environ,
        "FAIRLEAD_LEASE": "2",
        "FAIRLEAD_URL": "http://127.0.0.1:9",
        "FAIRLEAD_JOB_TOKEN": "none",
        "FAIRLEAD_CHECKPOINT_DIR": directory,
    }
    member = subprocess.run(
        [sys.executable, "-c", "from fairlead import job; job.attach(); print('attached')"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not ran.exists()
    assert "attached" not in member.stdout
    assert "the checkpoint holds code (posix.mkdir), which is never run" in member.stderr


def test_a_transfer_runs_nothing_from_the_files_it_installs(
    tmp_path: Path, evil: bytes, ran: Path
) -> None:
    name = "1-10.0.ckpt"
    digest = hashlib.sha256(evil).hexdigest().encode()
    (tmp_path / f"{name}.part").write_bytes(digest + evil)
    checkpoint.install(str(tmp_path), 2, CommittedCheckpoint(1, 10, (name,)))
    assert checkpoint.is_intact(str(tmp_path / name))
    assert checkpoint.read(str(tmp_path), 0) == evil
    assert not ran.exists()


_READERS: dict[str, Callable[[Path], object]] = {
    "latest.json": lambda directory: checkpoint.latest(str(directory)),
    "fence": lambda directory: checkpoint.fence(str(directory)),
    "order.json": lease_dir.read_order,
    "exit.json": lambda directory: lease_dir.read_ended(directory, 1),
    "members.json": lease_dir.read_members,
    "progress.json": lease_dir.read_progress,
    "stop": lease_dir.read_stop,
    "status.0": lambda directory: lease_dir.read_status(directory, 0, 7),
}


@pytest.mark.parametrize("name", _READERS)
def test_the_server_and_the_keeper_run_nothing_from_their_files(
    tmp_path: Path, evil: bytes, ran: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(evil)
    with suppress(UnusableFileError, FileNotFoundError):
        assert _READERS[name](tmp_path) in (None, 7)
    assert not ran.exists()
