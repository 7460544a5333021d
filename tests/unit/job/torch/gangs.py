"""Gangs of training processes under leases, of whichever size a lease gives them."""

import contextlib
import json
import multiprocessing
import os
import socket
import time
from collections.abc import Callable
from importlib import import_module
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from tests.e2e.support.lease_server import LeaseServer

TRAINING = "tests.unit.job.torch.training"


class Server(LeaseServer):
    """Leases that are renewed often and do not expire, however slow the machine is."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def environment(self, lease: int, pause_after: int | None = None) -> dict[str, str]:
        """Return the variables of a lease; its members pause until they are asked to leave.

        Otherwise they might make all steps before a slow server asks them.
        """
        variables = {
            "FAIRLEAD_URL": self.url,
            "FAIRLEAD_JOB_TOKEN": "secret",
            "FAIRLEAD_EMULATED_STEPS_PER_S": "40",
            "FAIRLEAD_LEASE": str(lease),
        }
        if pause_after is None:
            return variables
        return {
            **variables,
            "PAUSE_AFTER": str(pause_after),
            "PAUSE_UNTIL": str(self._asked_to_leave(lease)),
        }

    def answer(self, lease: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        status, answer = super().answer(lease, body)
        if answer.get("leave"):
            self._asked_to_leave(lease).touch()
        return status, {**answer, "valid_s": 60.0, "again_s": 0.05}

    def _asked_to_leave(self, lease: int) -> Path:
        return self._root / f"{lease}.asked-to-leave"


class Gang:
    """Runs the members of one job, lease by lease, in processes forked with PyTorch loaded."""

    def __init__(self, kind: str, root: Path, train: Callable[..., None]) -> None:
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload([TRAINING])
        self.kind, self.root, self._train = kind, root, train
        self.world_size = 1 if kind == "alone" else 2
        """members of the next lease"""
        self._leases = 0

    def preload(self) -> None:
        """Start to load PyTorch for the members, without waiting for it."""
        forkserver.ensure_running()

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


def train_elastic(kind: str, out: str, environment: dict[str, str]) -> None:
    """Train as the function of this name does, in a process that has PyTorch loaded."""
    import_module(TRAINING).train_elastic(kind, out, environment)


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
