"""Invariants of jobs that train in copies: their parts, their merges, and what continues."""

import math
import os
from collections.abc import Callable, Collection, Mapping

from tests.faults.machine.machine import Process
from tests.faults.record import CopyTruth, JobTruth, RunRecord

from fairlead.job import checkpoint
from fairlead.job.committed import CommittedCheckpoint
from fairlead.job.copies.part import COPY, STEPS
from fairlead.job.state_format import decode_state


def copy_of(directory: str) -> tuple[str, int] | None:
    """Return job and lease of a copy's checkpoint directory; None for a job's own one."""
    parts = directory.split(os.sep)
    return (parts[-3], int(parts[-1])) if parts[-2] == "copies" else None


def is_copy(process: Process) -> bool:
    """Return whether a process belongs to a copy of a job."""
    assert process.order is not None
    return COPY in process.order.environment


class CopyChecks:
    """Checks the parts of copies, and that each is merged once, after its lease has ended.

    The model is a number that grows by 1 with each step, so that the average of copies is known.
    """

    def __init__(self, record: RunRecord) -> None:
        self._record, self._require = record, record.require
        self._began: dict[int, tuple[int, float]] = {}
        """lease → steps and value with which its process began"""
        self.open_leases: Callable[[], Collection[int]] = tuple
        """returns the leases that the running server considers open"""

    def saved_part(self, directory: str, me: Process | None) -> None:
        """Check a checkpoint of one copy that has just been committed."""
        where = copy_of(directory)
        assert where is not None
        job, lease = where
        latest = checkpoint.latest(directory)
        assert latest is not None
        part = self._record.truth[job].parts.setdefault(lease, CopyTruth())
        label = f"copy of {job} under lease {lease} at step {latest.steps}"
        self._require(me is not None and me.lease == lease == latest.lease, f"{label}: by {me}")
        if me is None:
            return
        assert me.order is not None
        most = int(me.order.environment[STEPS])
        self._require(latest.steps <= most, f"{label}: at most {most} were its part")
        self._require(lease >= part.fence, f"{label}: committed below fence {part.fence}")
        self._require(part.committed <= latest.steps, f"{label}: {part.committed} were committed")
        self._require(not part.merged, f"{label}: its part was merged before")
        part.committed, part.committed_by = latest.steps, lease
        part.committed_at = self._record.now()
        part.value = self._read(directory, latest.files[0])
        self._check_value(me, latest.steps, part.value, label)
        self._record.note(f"{label}: committed")

    def saved_whole(self, directory: str, latest: CommittedCheckpoint, me: Process) -> None:
        """Check a checkpoint that the job itself has committed."""
        assert me.order is not None
        job = self._record.truth[me.order.job]
        job.value = self._read(directory, latest.files[0])
        self._check_value(me, latest.steps, job.value, f"lease {me.lease}")

    def merged(self, job_id: str, latest: CommittedCheckpoint) -> None:
        """Check a merged checkpoint: the parts of ended copies, each of them once."""
        job = self._record.truth[job_id]
        label = f"merge of {job_id} at lease {latest.lease}"
        parts = {
            int(name.split("-")[0]): steps
            for name, steps in zip(latest.files, latest.weights, strict=True)
            if steps  # else the file of the checkpoint before, kept for its position
        }
        for lease, steps in parts.items():
            part = job.parts.get(lease, CopyTruth())
            good = part.committed == steps and not part.merged
            self._require(good, f"{label}: {steps} steps of lease {lease}, not {part}")
            self._require(lease not in self.open_leases(), f"{label}: lease {lease} has not ended")
            part.merged = True
        total = job.committed + sum(parts.values())
        self._require(latest.steps == total, f"{label}: {latest.steps} steps, not {total}")
        self._require(latest.steps < job.total, f"{label}: no step is left for the job itself")
        weighted = sum(job.parts[lease].value * steps for lease, steps in parts.items())
        job.value = weighted / sum(parts.values())
        job.committed, job.committed_by = latest.steps, latest.lease
        job.committed_at, job.committed_ranks = self._record.now(), 1
        self._record.note(f"{label}: {parts} make {latest.steps} steps")

    def undone(self, directory: str, job: JobTruth) -> None:
        """Follow a job's or a copy's checkpoint whose commit a power failure has undone."""
        where, latest = copy_of(directory), checkpoint.latest(directory)
        if where is not None:
            part = job.parts[where[1]]
            part.committed = 0 if latest is None else latest.steps
            part.value = 0.0 if latest is None else self._read(directory, latest.files[0])
            return
        copies = os.path.join(os.path.dirname(directory), "copies")
        left = os.listdir(copies) if os.path.isdir(copies) else []
        last = -1 if latest is None else latest.lease
        for lease, part in job.parts.items():
            if lease > last and str(lease) in left:
                part.merged = False
        job.value = math.nan

    def launched(self, process: Process) -> None:
        """Require that nothing starts before the parts of ended copies are merged."""
        assert process.order is not None
        job = self._record.truth[process.order.job]
        for lease in sorted(self.unmerged(job)):
            others = ({*self.open_leases()} - {process.lease}) & job.parts.keys()
            self._require(
                bool(others), f"{process.name} starts without the steps of lease {lease}"
            )

    def began(self, process: Process, model: Mapping[str, float], steps: int) -> None:
        """Require that a process continues from the job's checkpoint, the merged one if any."""
        assert process.order is not None
        job, value = self._record.truth[process.order.job], model["value"]
        self._began[process.lease] = 0 if is_copy(process) else steps, value
        self._require(
            steps == job.committed, f"{process.name} begins at {steps}, not {job.committed}"
        )
        same = math.isnan(job.value) or math.isclose(value, job.value, rel_tol=1e-9)
        self._require(same, f"{process.name} begins with {value}, not {job.value}")

    def ended_program(self, process: Process) -> None:
        """Require that only the job itself runs the end of the program."""
        self._require(not is_copy(process), f"{process.name}: a copy ran the end of the program")

    def counted(self, job: JobTruth) -> float:
        """Return the steps that may count: the job's own, and those of parts to be merged."""
        return job.committed + sum(part.committed for part in self.unmerged(job).values())

    def unmerged(self, job: JobTruth) -> dict[int, CopyTruth]:
        """Return lease → part of copies that the next merge includes."""
        return {
            lease: part
            for lease, part in job.parts.items()
            if part.committed and not part.merged and lease > job.committed_by
        }

    def _check_value(self, me: Process, steps: int, value: float, label: str) -> None:
        began_at, began_with = self._began[me.lease]
        expected = began_with + steps - began_at
        good = math.isclose(value, expected, rel_tol=1e-9)
        self._require(good, f"{label}: the model has {value}, not {expected}")

    def _read(self, directory: str, name: str) -> float:
        value: float = decode_state(checkpoint._read_file(directory, name))["model"]["value"]
        return value
