"""Invariants of a run with kills, checked from outside: files, locks and answers."""

import json
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from tests.kills.train import chain

from fairlead.job import checkpoint

_POLL_S = 0.02


@dataclass
class _CheckpointState:
    """Last observed state of a job's checkpoint directory."""

    fence: int = -1
    lease: int = -1
    steps: int = 0
    commits: int = 0


@dataclass
class CheckpointMonitor:
    """Polls all checkpoint directories fifty times per second; none may ever regress."""

    jobs: Path
    """the server's job directory"""
    complaints: list[str] = field(default_factory=list)
    seen: dict[str, _CheckpointState] = field(default_factory=dict)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def commits(self) -> int:
        """Number of observed commits."""
        return sum(seen.commits for seen in self.seen.values())

    def stop(self) -> None:
        """Stop polling after a last check."""
        self._stopped.set()
        self._thread.join()
        self._poll()

    def _run(self) -> None:
        while not self._stopped.wait(_POLL_S):
            self._poll()

    def _poll(self) -> None:
        for directory in self.jobs.glob("*/checkpoint"):
            self._check(str(directory), directory.parent.name)

    def _check(self, directory: str, job: str) -> None:
        before = self.seen.setdefault(job, _CheckpointState())
        # Read the fence before the checkpoint: later commits must respect this fence.
        fence = checkpoint.fence(directory)
        latest = checkpoint.latest(directory)
        if fence < before.fence:
            self.complaints.append(f"{job}: its fence fell from {before.fence} to {fence}")
        if latest is not None and (latest.lease, latest.steps) != (before.lease, before.steps):
            what = f"{job}: lease {latest.lease} committed step {latest.steps}"
            if latest.lease < before.fence:
                self.complaints.append(f"{what} below fence {before.fence}")
            if latest.lease < before.lease or latest.steps < before.steps:
                self.complaints.append(f"{what} after {before.lease} had {before.steps}")
            before.lease, before.steps = latest.lease, latest.steps
            before.commits += 1
        before.fence = fence


def check_answer(home: Path, jobs: list[dict[str, Any]], known: Mapping[str, int]) -> list[str]:
    """Return the problems of the server's current list of jobs."""
    wrong = []
    listed = {job["id"] for job in jobs}
    wrong += [f"{job} was acknowledged but is lost" for job in known if job not in listed]
    for job in jobs:
        made = max(
            (steps_made(path) for path in (home / "steps").glob(f"{job['id']}.*")), default=0
        )
        if job["steps_done"] > made:
            wrong.append(f"{job['id']}: {job['steps_done']} steps are counted, {made} were made")
    return wrong


def steps_made(path: Path) -> int:
    """Return the number of different steps that a member has made, all steps of copies."""
    return _steps_in(path, path.stat().st_size)


@lru_cache
def _steps_in(path: Path, size: int) -> int:
    """Return the steps in a trace, to which lines are only added: its size tells whether any."""
    del size
    made = trained = 0
    for line in path.read_text(encoding="ascii").splitlines():
        _, what, number, *_ = line.split()
        if what == "makes":
            made = max(made, int(number) + 1)
        trained += what == "trains"
    return made or trained


def check_end(home: Path, jobs: list[dict[str, Any]], known: Mapping[str, int]) -> list[str]:
    """Return the problems after all jobs should have finished."""
    wrong = check_answer(home, jobs, known)
    for job in jobs:
        job_id, total = job["id"], int(job["total_steps"])
        if (job["state"], job["steps_done"]) != ("finished", total):
            wrong.append(f"{job_id} is {job['state']} with {job['steps_done']} of {total} steps")
        largest = job.get("max_gang") or job["gang"]
        is_elastic = largest != (job.get("min_gang") or job["gang"])
        for rank in range(largest if not _may_fork(home, job_id) else 0):
            problems = _check_rank(home, job_id, rank, total, stays=rank == 0 or not is_elastic)
            wrong += [f"{job_id}, rank {rank}: {what}" for what in problems]
    return wrong


def _may_fork(home: Path, job: str) -> bool:
    """Return whether the job may have trained in copies."""
    trace = home / "steps" / f"{job}.0"
    return trace.exists() and " trains " in trace.read_text(encoding="ascii")


def check_leases(home: Path, job: dict[str, Any], leases: list[dict[str, Any]]) -> list[str]:
    """Return the problems of the steps that count for each lease of a job with copies."""
    if not leases or not _may_fork(home, job["id"]):
        return []
    trained: Counter[int] = Counter()
    for line in (home / "steps" / f"{job['id']}.0").read_text(encoding="ascii").splitlines():
        lease, what, *_ = line.split()
        trained[int(lease)] += what == "trains"
    wrong = [
        f"{job['id']}: {lease['steps']} steps count for lease {lease['lease']}, "
        f"{trained[lease['lease']]} were made"
        for lease in leases
        if lease["steps"] > trained[lease["lease"]]
    ]
    if (counted := sum(lease["steps"] for lease in leases)) != job["total_steps"]:
        wrong.append(f"{job['id']}: leases with {counted} of {job['total_steps']} steps")
    return wrong


def _check_rank(home: Path, job: str, rank: int, total: int, *, stays: bool) -> list[str]:
    """Return the problems of one member's trace over all leases of its job.

    A rank that does not stay is missing in some leases, perhaps in the last or in all.
    """
    result, trace = home / "results" / f"{job}.{rank}", home / "steps" / f"{job}.{rank}"
    if not result.exists():
        if stays:
            return ["no result file"]
        return _check_trace(trace, None, stays=False) if trace.exists() else []
    value = 0
    for step in range(total):
        value = chain(value, step)
    wrong = _check_trace(trace, total, stays=stays)
    if json.loads(result.read_text(encoding="ascii")) != {"made": total, "chain": value}:
        wrong.append(f"wrong state after {total} steps")
    return wrong


def _check_trace(trace: Path, total: int | None, *, stays: bool) -> list[str]:
    """Return the problems of a member's steps; ``total`` is None if it was not in the last lease.

    A rank that does not stay continues from steps that others have made.
    """
    wrong = []
    last_lease, reached, at = -1, 0, 0
    for line in trace.read_text(encoding="ascii").splitlines():
        lease_text, what, number, *more = line.split()
        lease = int(lease_text)
        if what == "begins":
            if lease <= last_lease:
                wrong.append(f"lease {lease} began after lease {last_lease}")
            if not stays:
                reached = max(reached, int(number))
            if not int(number) == int(more[0]) <= reached:
                wrong.append(f"lease {lease} began at step {number} with {more[0]} of {reached}")
            last_lease, at = lease, int(number)
            continue
        if lease != last_lease:
            wrong.append(f"lease {lease} made step {number} after lease {last_lease} had begun")
        if int(number) != at:
            wrong.append(f"lease {lease} made step {number} instead of {at}")
        at += 1
        reached = max(reached, at)
    if total is not None and at != total:
        wrong.append(f"the last lease ended after step {at} of {total}")
    return wrong


def wait_until(condition: Any, timeout_s: float) -> bool:
    """Wait for a condition; return whether it held in time."""
    until = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True
