"""Keepers whose members save on their node's own disk, run as Slurm runs them."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.engines.base import Ended, Order
from fairlead.engines.keeper import lease_dir
from fairlead.engines.slurm import leases as slurm_leases
from fairlead.job import checkpoint
from fairlead.job.exit_status import REFUSED

MEMBER = """
import os, sys, time
from fairlead.job import checkpoint
where, lease = os.environ["FAIRLEAD_NODE_CHECKPOINT_DIR"], int(os.environ["FAIRLEAD_LEASE"])
found = checkpoint.latest(where)
print("begins at", found.steps if found else 0, flush=True)
open(os.environ["FAIRLEAD_CHECKPOINT_DIR"] + "/of-another-program", "w").close()
for steps in range(10 + (found.steps if found else 0), 1000, 10):
    try:
        checkpoint.write(where, lease, steps, 0, b"x" * 1000)
        checkpoint.commit(where, lease, steps, 1)
    except checkpoint.FencedError as error:
        print(error, flush=True)
        sys.exit(int(sys.argv[2]))
    if steps >= int(sys.argv[1]):
        break
    time.sleep(0.05)
"""


class Node:
    """A data directory, and a node's own one."""

    def __init__(self, root: Path) -> None:
        self.root, self.home = root, root / "own"
        self.shared = root / "data/jobs/j1/checkpoint"
        self.own = self.home / "jobs/j1/checkpoint"

    def start(self, lease: int, until: int) -> "subprocess.Popen[bytes]":
        """Start the keeper of a lease whose member saves every 10 steps up to these."""
        order = Order(
            lease=lease,
            job="j1",
            command=(sys.executable, "-c", MEMBER, str(until), str(REFUSED)),
            directory="/",
            devices=(("n1", 0),),
            accelerators=("v100",),
            checkpoint_dir=str(self.shared),
            log_dir=str(self.root / "logs"),
        )
        (part,) = slurm_leases.write(self.directory(lease).parent, order, "name", {})
        command = [sys.executable, "-m", "fairlead.engines.slurm.keeper"]
        command += [str(part.directory), str(self.home)]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
        return subprocess.Popen(command, env=environment)

    def directory(self, lease: int) -> Path:
        return self.root / "leases" / str(lease) / "0"

    def run(self, lease: int, until: int) -> Ended:
        """Run a lease to its end."""
        return self.end(self.start(lease, until), lease)

    def end(self, keeper: "subprocess.Popen[bytes]", lease: int) -> Ended:
        assert keeper.wait(30) == 0
        ended = lease_dir.read_ended(self.directory(lease))
        assert ended is not None
        return ended

    def printed(self, lease: int) -> str:
        return (self.root / f"logs/{lease}.0.log").read_text()

    def carried(self) -> int:
        found = checkpoint.latest(str(self.shared))
        return 0 if found is None else found.steps


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def until(holds: Callable[[], bool]) -> None:
    patience = time.monotonic() + 30.0
    while not holds():
        assert time.monotonic() < patience
        time.sleep(0.02)


def test_what_was_saved_is_carried_before_the_end_is_told_and_nothing_stays(node: Node) -> None:
    ended = node.run(1, 30)
    assert (ended.ending, ended.steps) == ("finished", 30.0)
    assert node.carried() == 30
    assert not list(node.own.glob("*ckpt*"))
    assert checkpoint.latest(str(node.own)) is None
    assert (node.shared / "of-another-program").exists(), "others' files are in the data directory"
    ended = node.run(2, 60)
    assert (ended.ending, ended.steps) == ("finished", 60.0)
    assert "begins at 30" in node.printed(2)


def test_a_damaged_checkpoint_is_named_and_nothing_starts_from_it(node: Node) -> None:
    node.run(1, 30)
    (saved,) = node.shared.glob("*.ckpt")
    saved.write_bytes(saved.read_bytes()[:-1] + b"?")
    ended = node.run(2, 60)
    assert ended.ending == "failed"
    assert f"{saved} is damaged" in ended.message
    assert not (node.root / "logs/2.0.log").exists()


def test_members_are_refused_on_their_own_disk_once_another_lease_may_write(node: Node) -> None:
    keeper = node.start(1, 10_000)
    until(lambda: node.carried() > 0)
    checkpoint.raise_fence(str(node.shared), 2)
    last = node.carried()
    ended = node.end(keeper, 1)
    assert (ended.ending, ended.steps) == ("refused", float(last))
    assert "lease 2 may write" in node.printed(1)
    assert node.carried() == last
    ended = node.run(2, last + 10)
    assert f"begins at {last}\n" in node.printed(2)
    assert (ended.ending, ended.steps) == ("finished", last + 10.0)


def test_a_keeper_that_was_killed_leaves_what_was_not_carried_and_the_next_ignores_it(
    node: Node,
) -> None:
    keeper = node.start(1, 10_000)
    until(lambda: node.carried() > 0)
    keeper.kill()
    keeper.wait()
    last = node.carried()
    # A member that its keeper's death did not reach would save on, here and only here.
    checkpoint.write(str(node.own), 1, last + 500, 0, b"never carried")
    checkpoint.commit(str(node.own), 1, last + 500, 1)
    ended = node.run(2, last + 10)
    assert f"begins at {last}\n" in node.printed(2)
    assert (ended.ending, ended.steps) == ("finished", last + 10.0)
