"""Gangs of training processes under leases, of whichever size a lease gives them."""

import contextlib
import json
import multiprocessing
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.support.lease_server import LeaseServer

TRAINING = "tests.unit.job.torch.training"


class Server(LeaseServer):
    """Leases that are renewed often and do not expire, however slow the machine is."""

    def answer(self, lease: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        status, answer = super().answer(lease, body)
        return status, {**answer, "valid_s": 60.0, "again_s": 0.05}


class Gang:
    """Runs the members of one job, lease by lease, in processes forked with PyTorch loaded."""

    def __init__(self, kind: str, root: Path, train: Callable[..., None]) -> None:
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload([TRAINING])
        self.kind, self.root, self._train = kind, root, train
        self.world_size = 1 if kind == "alone" else 2
        """members of the next lease"""
        self._leases = 0

    def start(self, name: str, environment: dict[str, str]) -> list[Any]:
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
            members.append(self._processes.Process(target=self._train, args=arguments))
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
    until = time.monotonic() + 180
    for member in members:
        member.join(max(until - time.monotonic(), 0.1))
        if member.is_alive():
            member.kill()
            member.join()
    return [member.exitcode for member in members]
