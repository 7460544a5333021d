"""Interrupted training ends with the same bits as training that nothing interrupts."""

import contextlib
import json
import multiprocessing
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.support.lease_server import LeaseServer

from fairlead.job import EXIT_PREEMPTED, checkpoint

pytest.importorskip("torch")

TRAINING = "tests.unit.job.torch.training"
PREEMPTIONS = 10
KILLED = 6
"""lease whose last rank is killed"""


class Server(LeaseServer):
    """Leases that are renewed often and do not expire, however slow the machine is."""

    def answer(self, lease: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        status, answer = super().answer(lease, body)
        return status, {**answer, "valid_s": 60.0, "again_s": 0.05}


class Gang:
    """Runs the members of one job, lease by lease, in processes forked with PyTorch loaded."""

    def __init__(self, kind: str, root: Path) -> None:
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload([TRAINING])
        self.kind, self.root = kind, root
        self.world_size = 1 if kind == "alone" else 2
        self._leases = 0

    def start(self, name: str, environment: dict[str, str]) -> list[Any]:
        from tests.unit.job.torch import training  # noqa: PLC0415  # imports PyTorch

        self._leases += 1
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port_for(self._leases))}
        members = []
        for rank in range(self.world_size):
            member = {"RANK": str(rank), "WORLD_SIZE": str(self.world_size), **environment}
            if self.world_size > 1:
                member.update(meeting)
            if "FAIRLEAD_LEASE" in environment:
                member["FAIRLEAD_RANK"] = str(rank)
                member["FAIRLEAD_WORLD_SIZE"] = str(self.world_size)
            arguments = (self.kind, str(self.root / name), member)
            members.append(self._processes.Process(target=training.train, args=arguments))
            members[-1].start()
        return members

    def results(self, name: str) -> list[Any]:
        paths = (self.root / f"{name}.{rank}" for rank in range(self.world_size))
        return [json.loads(path.read_text()) for path in paths]


def port_for(number: int) -> int:
    """Return a free port below those that the kernel gives to connections meanwhile."""
    for attempt in range(100):
        port = 20_000 + (os.getpid() * 101 + number * 7 + attempt) % 10_000
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")


def end(members: list[Any]) -> list[int]:
    until = time.monotonic() + 60
    for member in members:
        member.join(max(until - time.monotonic(), 0.1))
        if member.is_alive():
            member.kill()
            member.join()
    return [member.exitcode for member in members]


@pytest.mark.parametrize("kind", ["alone", "ddp", "fsdp"])
def test_ten_preemptions_and_a_killed_rank_change_no_bit(kind: str, tmp_path: Path) -> None:
    gang = Gang(kind, tmp_path)
    assert end(gang.start("plain", {})) == [0] * gang.world_size
    directory = str(tmp_path / "checkpoint")
    server = Server()
    server.world_size = gang.world_size
    environment = {
        "FAIRLEAD_URL": server.url,
        "FAIRLEAD_JOB_TOKEN": "secret",
        "FAIRLEAD_CHECKPOINT_DIR": directory,
        "FAIRLEAD_EMULATED_STEPS_PER_S": "40",
    }
    preempted, lease = 0, 0
    try:
        while True:
            lease += 1
            checkpoint.raise_fence(directory, lease)
            committed = checkpoint.latest(directory)
            done = committed.steps if committed else 0
            if lease != KILLED and preempted < PREEMPTIONS:
                server.leave_from[lease] = done + 1
            members = gang.start("leased", {**environment, "FAIRLEAD_LEASE": str(lease)})
            if lease == KILLED:
                kill_after_checkpoint(directory, done, members)
            codes = end(members)
            if codes == [0] * gang.world_size:
                break
            assert lease == KILLED or codes == [EXIT_PREEMPTED] * gang.world_size, codes
            preempted += codes[0] == EXIT_PREEMPTED
    finally:
        server.close()
    assert preempted >= PREEMPTIONS
    for leased, plain in zip(gang.results("leased"), gang.results("plain"), strict=True):
        for part in ("indices", "losses", "rate", "parameters"):
            assert leased[part] == plain[part], part


def kill_after_checkpoint(directory: str, done: int, members: list[Any]) -> None:
    """Kill the last rank a few steps after a checkpoint, then the others, as a keeper does."""
    until = time.monotonic() + 30
    while (committed := checkpoint.latest(directory)) is None or committed.steps <= done:
        assert time.monotonic() < until
        time.sleep(0.005)
    os.kill(members[-1].pid, signal.SIGKILL)
    members[-1].join()
    for member in members:
        member.kill()
