"""Traces in memory: jobs by arrival, with their lines in the file."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from fairlead.files.parsing.fields import quote
from fairlead.model.errors import InputError
from fairlead.model.job import Job


@dataclass(frozen=True, slots=True)
class Trace(Sequence[Job]):
    """A sequence of jobs by arrival, with their file and lines."""

    jobs: tuple[Job, ...]
    lines: tuple[int, ...] = ()
    source: str = ""

    @overload
    def __getitem__(self, index: int) -> Job: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Job, ...]: ...
    def __getitem__(self, index: int | slice) -> Job | tuple[Job, ...]:
        return self.jobs[index]

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self.jobs)

    def locate_error(self, error: InputError, index: int) -> InputError:
        """Return the error with the file and line of the job at ``index`` filled in."""
        line = self.lines[index] if self.lines else None
        return error.within(source=self.source or None, line=line)


def by_arrival(jobs: Sequence[Job], lines: Sequence[int], source: str) -> Trace:
    """Return a trace sorted by arrival, stable; duplicate ids are errors."""
    first: dict[str, int] = {}
    for job, line in zip(jobs, lines, strict=True):
        if job.id in first:
            raise InputError(
                f"job {quote(job.id)} is already on line {first[job.id]}",
                fix="expected unique ids",
                source=source,
                line=line,
                field="job_id",
            )
        first[job.id] = line
    order = sorted(range(len(jobs)), key=lambda i: jobs[i].arrival_at)
    return Trace(tuple(jobs[i] for i in order), tuple(lines[i] for i in order), source)
