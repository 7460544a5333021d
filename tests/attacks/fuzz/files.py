"""Hostile files in all places that a job can write, and the functions that read them."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.attacks.fuzz.values import hostile_json
from tests.attacks.hostile import order

from fairlead.engines.base import Ended
from fairlead.engines.keeper import lease_dir
from fairlead.engines.keeper.log_file import read_leases
from fairlead.engines.ray import leases as ray_leases
from fairlead.engines.shared.multi_node import saved_steps
from fairlead.engines.shared.nodes.files import NodeFiles
from fairlead.engines.slurm import leases as slurm_leases
from fairlead.job import checkpoint

LEASE = 5
_COMMITTED = {"lease": LEASE, "steps": 3, "files": ["5-3.0.ckpt"]}
_BASES: dict[str, dict[str, Any]] = {
    "latest.json": _COMMITTED,
    "exit.json": {
        "lease": LEASE, "ending": "left", "steps": 3, "message": "m", "exit_codes": [0],
    },
    "members.json": {"keeper": 1, "members": [1], "started": [[1, 2]]},
    "progress.json": {"steps": 3.0},
    "stop": {"grace_s": 1.0, "why": "preempted"},
    "order.json": {"lease": LEASE, "job": "j1", "command": ["true"], "devices": [["n1", 0]]},
}  # fmt: skip
CHECKPOINT_FILES = ("latest.json", "fence", "lock", "5-3.0.ckpt", "5-4.0.ckpt", "4-1.0.tmp")
LEASE_FILES = (
    "exit.json", "members.json", "progress.json", "stop", "order.json", "alive", "status.0",
    "keeper.log", "carrying", "here",
)  # fmt: skip
LOG_FILES = ("5.0.log", "5.0.log.1", "4.0.log", "999999999999999999.0.log")


def hostile_file(rng: Random, path: Path) -> None:
    """Put something hostile at a path, in place of anything there."""
    _discard(path)
    form = rng.choices(
        ("json", "fifo", "link", "directory", "sparse", "endless", "loop", "number", "unreadable"),
        (12, 1, 2, 1, 1, 1, 1, 2, 1),
    )[0]
    if form == "fifo":
        os.mkfifo(path)
    elif form == "link":
        path.symlink_to(rng.choice(("/etc/passwd", "/nonexistent", "/proc/self/mem", "..")))
    elif form == "endless":
        path.symlink_to(rng.choice(("/dev/zero", "/dev/full", "/dev/stdin")))
    elif form == "loop":
        path.symlink_to(path)
    elif form == "directory":
        path.mkdir()
        (path / "inside").write_bytes(b"x")
    elif form == "sparse":
        with path.open("wb") as file:
            # A data file may be large, and hashing it takes its time.
            sizes = (1 << 21, 1 << 26) if path.suffix == ".ckpt" else (1 << 21, 1 << 33, 1 << 40)
            file.truncate(rng.choice(sizes))
    elif form == "number":
        path.write_text(rng.choice(("5", "-1", "9" * 30, "NaN", "5 ", "٣", "1e3")), "utf-8")
    else:
        path.write_bytes(hostile_json(rng, _BASES.get(path.name, _COMMITTED)))
        if form == "unreadable":
            path.chmod(0)


@dataclass(frozen=True)
class Target:
    """Files of one directory, and the calls that read or replace them."""

    files: tuple[str, ...]
    calls: tuple[Callable[[Path], object], ...]
    """each takes the directory; an OSError is the failure of the job that owns it"""


def _ended_is_own(directory: Path) -> None:
    ended = lease_dir.read_ended(directory, LEASE)
    assert ended is None or ended.lease == LEASE, ended


def _declare_lost(directory: Path) -> None:
    ended = Ended(LEASE, "lost", None, "keeper died")
    lease_dir.write_ended(directory, ended)
    assert lease_dir.read_ended(directory, LEASE) == ended


def _lock(directory: Path) -> None:
    lease_dir.is_alive(directory)
    lock = lease_dir.try_lock(directory)
    if lock is not None:
        lock.close()


def _saved_steps(directory: Path) -> None:
    steps = saved_steps(order(directory, checkpoint_dir=str(directory)))
    assert steps is None or 0 <= steps < 2**53, steps


def _slurm(directory: Path) -> None:
    """Read the files of a part of a lease on Slurm, and declare it lost."""
    (part,) = parts = slurm_leases.read(directory, order(directory, LEASE), "fairlead-5")
    lease = slurm_leases.TrackedSlurmLease(order(directory, LEASE), directory, parts, 0.0)
    part.read()
    part.last_output_line()
    lease.printed_steps()


def _node_files(directory: Path) -> None:
    """Read the checkpoint of a job as a node's agent does."""
    home = directory / "home"
    target = home / "jobs" / "j1" / "checkpoint"
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copytree(directory, target, ignore=lambda *_: [*os.listdir(directory)])
        for name in CHECKPOINT_FILES:
            if os.path.lexists(directory / name):
                (directory / name).rename(target / name)
    files = NodeFiles(home)
    files.new_checkpoint(order(home, LEASE))
    files.missing("j1", ["5-3.0.ckpt"])
    files.read("jobs/j1/checkpoint/5-3.0.ckpt", 0, 100)


def _logs(directory: Path) -> None:
    text, _ = read_leases(directory, 0, 0, 1 << 16)
    assert len(text) <= 1 << 16
    assert b"root:" not in text, "a file of another user was read"


TARGETS: dict[str, Target] = {
    "checkpoint": Target(
        CHECKPOINT_FILES,
        (
            lambda d: checkpoint.latest(str(d)),
            lambda d: checkpoint.durable_latest(str(d)),
            lambda d: checkpoint.fence(str(d)),
            lambda d: checkpoint.read(str(d), 0),
            lambda d: checkpoint.is_intact(str(d / "5-3.0.ckpt")),
            lambda d: checkpoint.require(str(d), LEASE),
            lambda d: checkpoint.raise_fence(str(d), LEASE, wait_s=0.05),
            lambda d: checkpoint.remove_copy(str(d), LEASE, wait_s=0.05),
            _saved_steps,
            _node_files,
        ),
    ),
    "lease": Target(
        LEASE_FILES,
        (
            _ended_is_own,
            lease_dir.read_members,
            lease_dir.read_progress,
            lease_dir.read_stop,
            lease_dir.read_order,
            lambda d: lease_dir.read_status(d, 0, 7),
            lambda d: lease_dir.read_own_exit(d, 0, 7),
            _slurm,
            ray_leases.read,
            _lock,
            _declare_lost,
            lease_dir.remove,
        ),
    ),
    "logs": Target(LOG_FILES, (_logs,)),
}


def _discard(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
