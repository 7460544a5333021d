"""The jobs of a run, by arrival, each with the line of the file it came from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from fairlead.files.parsing.fields import quoted
from fairlead.model.errors import InputError
from fairlead.model.job import Job


@dataclass(frozen=True, slots=True)
class Trace(Sequence[Job]):
    """Jobs by arrival, with the file and line each came from; itself a sequence of the jobs."""

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

    def place(self, error: InputError, index: int) -> InputError:
        """Return the error with the file and line of the job at ``index`` filled in."""
        line = self.lines[index] if self.lines else None
        return error.within(source=self.source or None, line=line)


def by_arrival(jobs: Sequence[Job], lines: Sequence[int], source: str) -> Trace:
    """Return a trace sorted by arrival, stable, after refusing ids that occur twice."""
    first: dict[str, int] = {}
    for job, line in zip(jobs, lines, strict=True):
        if job.id in first:
            raise InputError(
                f"job {quoted(job.id)} is already on line {first[job.id]}",
                fix="give every job its own id",
                source=source,
                line=line,
                field="job_id",
            )
        first[job.id] = line
    order = sorted(range(len(jobs)), key=lambda i: jobs[i].arrival_at)
    return Trace(tuple(jobs[i] for i in order), tuple(lines[i] for i in order), source)
