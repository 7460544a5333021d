"""Trains in this process under one lease after the other, each of a given number of steps."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.e2e.support.lease_server import LeaseServer

from fairlead.job import EXIT_PREEMPTED, Run, checkpoint
from fairlead.job.leased_run import LeasedRun

T = TypeVar("T")


class Server(LeaseServer):
    """Leases that do not expire, however slow the machine is."""

    def answer(self, lease: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        status, answer = super().answer(lease, body)
        return status, {**answer, "valid_s": 60.0}


class PreemptedRun(LeasedRun):
    """A run whose lease ends after one certain step."""

    def __init__(self, lease: int, environment: dict[str, str], last_step: int | None) -> None:
        super().__init__(lease, environment)
        self._last_step = last_step

    def end_step(self) -> None:
        super().end_step()
        if self.steps_done == self._last_step:
            self._lease.check_now()
            assert self._lease._decided.wait(60)


@contextmanager
def leased(lease: int, environment: dict[str, str], last_step: int | None) -> Iterator[Run]:
    """Return a run under a lease, which ends as if its process did."""
    run = PreemptedRun(lease, environment, last_step)
    try:
        yield run
    finally:
        run._lease.close()
        if run._lease._connection is not None:
            run._lease._connection.close()


def train_in_leases(train: Callable[[Run], T], root: Path, preempted_after: Sequence[int]) -> T:
    """Return the result of a training that is preempted after each of the given steps."""
    server, directory = Server(), str(root / "checkpoint")
    environment = {
        "FAIRLEAD_URL": server.url,
        "FAIRLEAD_JOB_TOKEN": "secret",
        "FAIRLEAD_CHECKPOINT_DIR": directory,
    }
    handler = signal.getsignal(signal.SIGTERM)
    try:
        for lease, last_step in enumerate(preempted_after, 1):
            checkpoint.raise_fence(directory, lease)
            server.leave_from[lease] = last_step
            with (
                leased(lease, environment, last_step) as run,
                pytest.raises(SystemExit) as ended,
            ):
                train(run)
            assert ended.value.code == EXIT_PREEMPTED
            committed = checkpoint.latest(directory)
            assert committed is not None
            assert committed.steps == last_step
        last = len(preempted_after) + 1
        checkpoint.raise_fence(directory, last)
        with leased(last, environment, None) as run:
            return train(run)
    finally:
        signal.signal(signal.SIGTERM, handler)
        server.close()
