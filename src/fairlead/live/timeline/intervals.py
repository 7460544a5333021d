"""Intervals of time for which leases held devices."""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlead.model.arrays import FloatArray, IntArray

OPEN = "open"
ENDINGS = (OPEN, "finished", "left", "preempted", "failed", "lost")
"""endings by their stored number; ``left``: the job was suspended or cancelled"""


_SHORT, _LONG, _TIME = np.dtype("<i4"), np.dtype("<i8"), np.dtype("<f8")
"""numbers in stored columns"""


class HeldInterval(NamedTuple):
    """One lease, its devices, and the time for which it has held them."""

    lease: int
    job: str
    tenant: str
    devices: tuple[int, ...]
    began_at: float
    ended_at: float
    """for an open lease, the time up to which this is known"""
    ending: str = OPEN


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Intervals as columns; the devices of row i are ``device[start[i]:start[i + 1]]``."""

    jobs: Sequence[tuple[str, str]]
    """ids and tenants"""
    lease: IntArray
    job: IntArray
    """rows → index in ``jobs``"""
    began_at: FloatArray
    ended_at: FloatArray
    ending: IntArray
    """rows → index in ENDINGS"""
    start: IntArray
    device: IntArray

    def __len__(self) -> int:
        return len(self.lease)

    @property
    def size(self) -> IntArray:
        """rows → number of devices."""
        return np.diff(self.start)

    @classmethod
    def of(cls, intervals: Iterable[HeldInterval]) -> "Intervals":
        """Return intervals as columns."""
        rows = list(intervals)
        number: dict[tuple[str, str], int] = {}
        for row in rows:
            number.setdefault((row.job, row.tenant), len(number))
        return cls(
            list(number),
            np.array([row.lease for row in rows], dtype=np.int64),
            np.array([number[row.job, row.tenant] for row in rows], dtype=np.int64),
            np.array([row.began_at for row in rows], dtype=np.float64),
            np.array([row.ended_at for row in rows], dtype=np.float64),
            np.array([ENDINGS.index(row.ending) for row in rows], dtype=np.int64),
            _starts([len(row.devices) for row in rows]),
            np.array([device for row in rows for device in row.devices], dtype=np.int64),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the columns for ``from_json``, with times exact to milliseconds."""
        tenants = {tenant: i for i, tenant in enumerate(sorted({each for _, each in self.jobs}))}
        return {
            "jobs": {
                "id": [job for job, _ in self.jobs],
                "tenants": list(tenants),
                "tenant": [tenants[tenant] for _, tenant in self.jobs],
            },
            "lease": _packed(self.lease, _LONG),
            "job": _packed(self.job, _SHORT),
            "began": _packed(self.began_at.round(3), _TIME),
            "ended": _packed(self.ended_at.round(3), _TIME),
            "ending": _packed(self.ending, _SHORT),
            "size": _packed(self.size, _SHORT),
            "device": _packed(self.device, _SHORT),
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> "Intervals":
        """Return the intervals that ``as_json`` returned."""
        return cls(
            _jobs(saved["jobs"]),
            _unpacked(saved["lease"], _LONG).astype(np.int64),
            _unpacked(saved["job"], _SHORT).astype(np.int64),
            _unpacked(saved["began"], _TIME).astype(np.float64),
            _unpacked(saved["ended"], _TIME).astype(np.float64),
            _unpacked(saved["ending"], _SHORT).astype(np.int64),
            _starts(_unpacked(saved["size"], _SHORT)),
            _unpacked(saved["device"], _SHORT).astype(np.int64),
        )

    def rows(self) -> list[HeldInterval]:
        """Return the intervals one by one."""
        start, device, job = self.start.tolist(), self.device.tolist(), self.job.tolist()
        return [
            HeldInterval(
                lease=self.lease.item(i),
                job=self.jobs[job[i]][0],
                tenant=self.jobs[job[i]][1],
                devices=tuple(device[start[i] : start[i + 1]]),
                began_at=self.began_at.item(i),
                ended_at=self.ended_at.item(i),
                ending=ENDINGS[self.ending.item(i)],
            )
            for i in range(len(self))
        ]

    def take(self, rows: IntArray) -> "Intervals":
        """Return some of the rows, in this order."""
        size = self.size[rows]
        start = _starts(size)
        # The position in ``device`` is that of the row's first device plus the place in the row.
        place = np.arange(int(start[-1])) - np.repeat(start[:-1], size)
        device = self.device[np.repeat(self.start[:-1][rows], size) + place]
        return Intervals(
            self.jobs,
            self.lease[rows],
            self.job[rows],
            self.began_at[rows],
            self.ended_at[rows],
            self.ending[rows],
            start,
            device,
        )

    def with_each_job_once(self) -> "Intervals":
        """Return the same rows, with the jobs that they name."""
        named, row = np.unique(self.job, return_inverse=True)
        jobs = [self.jobs[i] for i in named.tolist()]
        number = {job: i for i, job in enumerate(dict.fromkeys(jobs))}
        numbers = np.fromiter(map(number.__getitem__, jobs), np.int64, len(jobs))
        return replace(self, jobs=list(number), job=numbers[row])


def merged(parts: Sequence[Intervals]) -> Intervals:
    """Return the intervals of several hours with one row per lease, its last one."""
    jobs = [job for part in parts for job in part.jobs]
    first = _starts([len(part.jobs) for part in parts]).tolist()
    whole = Intervals(
        jobs,
        _joined([part.lease for part in parts]),
        _joined([part.job + before for part, before in zip(parts, first, strict=False)]),
        _joined([part.began_at for part in parts]).astype(np.float64),
        _joined([part.ended_at for part in parts]).astype(np.float64),
        _joined([part.ending for part in parts]),
        _starts(_joined([part.size for part in parts])),
        _joined([part.device for part in parts]),
    )
    last = len(whole) - 1 - np.unique(whole.lease[::-1], return_index=True)[1]
    return whole.take(last).with_each_job_once()


def _starts(sizes: Sequence[int] | IntArray) -> IntArray:
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))]).astype(np.int64)


def _jobs(saved: Mapping[str, Any] | list[list[str]]) -> list[tuple[str, str]]:
    """Return the ids and tenants of stored jobs."""
    if isinstance(saved, list):  # of an earlier version
        return [(job, tenant) for job, tenant in saved]
    tenants = saved["tenants"]
    return list(zip(saved["id"], (tenants[i] for i in saved["tenant"]), strict=True))


def _packed(column: NDArray[Any], numbers: np.dtype[Any]) -> str:
    """Return a column as text that takes a fraction of a list's time to read."""
    return b64encode(column.astype(numbers).tobytes()).decode("ascii")


def _unpacked(saved: str | list[float], numbers: np.dtype[Any]) -> NDArray[Any]:
    if isinstance(saved, list):  # of an earlier version
        return np.array(saved)
    return np.frombuffer(b64decode(saved, validate=True), numbers)


def _joined(columns: Sequence[Any]) -> Any:
    return np.concatenate(columns) if columns else np.zeros(0, dtype=np.int64)
