"""Keepers of members that save to their node's local disk, run as Slurm runs them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.waiting import until

from fairlead.engines.base import Ended, LaunchOrder
from fairlead.engines.keeper import lease_dir
from fairlead.engines.slurm import leases as slurm_leases
from fairlead.job import checkpoint
from fairlead.job.exit_status import EXIT_FENCED

MEMBER = """
import os, sys, time
from fairlead.job import checkpoint
where, lease = os.environ["FAIRLEAD_NODE_CHECKPOINT_DIR"], int(os.environ["FAIRLEAD_LEASE"])
latest = checkpoint.latest(where)
print("begins at", latest.steps if latest else 0, flush=True)
open(os.environ["FAIRLEAD_CHECKPOINT_DIR"] + "/of-another-program", "w").close()
for steps in range(10 + (latest.steps if latest else 0), 1000, 10):
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
    """A data directory and a node-local one."""

    def __init__(self, root: Path) -> None:
        self.root, self.home = root, root / "local"
        self.shared = root / "data/jobs/j1/checkpoint"
        self.local = self.home / "jobs/j1/checkpoint"

    def start(self, lease: int, until: int) -> "subprocess.Popen[bytes]":
        """Start the keeper of a lease whose member saves every 10 steps up to a limit."""
        order = LaunchOrder(
            lease=lease,
            job="j1",
            command=(sys.executable, "-c", MEMBER, str(until), str(EXIT_FENCED)),
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
        ended = lease_dir.read_ended(self.directory(lease), lease)
        assert ended is not None
        return ended

    def printed(self, lease: int) -> str:
        return (self.root / f"logs/{lease}.0.log").read_text()

    def transferred(self) -> int:
        """Return the steps of the checkpoint in the data directory."""
        latest = checkpoint.latest(str(self.shared))
        return 0 if latest is None else latest.steps


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_checkpoints_are_transferred_before_the_end_is_reported_and_then_removed(
    node: Node,
) -> None:
    ended = node.run(1, 30)
    assert (ended.ending, ended.steps) == ("finished", 30.0)
    assert node.transferred() == 30
    assert not list(node.local.glob("*ckpt*"))
    assert checkpoint.latest(str(node.local)) is None
    assert (node.shared / "of-another-program").exists(), (
        "files of other programs belong in the data directory"
    )
    ended = node.run(2, 60)
    assert (ended.ending, ended.steps) == ("finished", 60.0)
    assert "begins at 30" in node.printed(2)


def test_no_member_starts_from_a_damaged_checkpoint(node: Node) -> None:
    node.run(1, 30)
    (saved,) = node.shared.glob("*.ckpt")
    saved.write_bytes(saved.read_bytes()[:-1] + b"?")
    ended = node.run(2, 60)
    assert ended.ending == "failed"
    assert f"{saved} is damaged" in ended.message
    assert not (node.root / "logs/2.0.log").exists()


def test_members_are_fenced_on_their_local_disk_once_a_later_lease_may_write(node: Node) -> None:
    keeper = node.start(1, 10_000)
    until(lambda: node.transferred() > 0)
    checkpoint.raise_fence(str(node.shared), 2)
    last = node.transferred()
    ended = node.end(keeper, 1)
    assert (ended.ending, ended.steps) == ("refused", float(last))
    assert "lease 2 may write" in node.printed(1)
    assert node.transferred() == last
    ended = node.run(2, last + 10)
    assert f"begins at {last}\n" in node.printed(2)
    assert (ended.ending, ended.steps) == ("finished", last + 10.0)


def test_checkpoints_that_a_killed_keeper_did_not_transfer_are_ignored(
    node: Node,
) -> None:
    keeper = node.start(1, 10_000)
    until(lambda: node.transferred() > 0)
    keeper.kill()
    keeper.wait()
    last = node.transferred()
    # A member that survived its keeper would continue to save on this node only.
    checkpoint.write(str(node.local), 1, last + 500, 0, b"never transferred")
    checkpoint.commit(str(node.local), 1, last + 500, 1)
    ended = node.run(2, last + 10)
    assert f"begins at {last}\n" in node.printed(2)
    assert (ended.ending, ended.steps) == ("finished", last + 10.0)
