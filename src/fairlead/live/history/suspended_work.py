"""Work of programs without the library that only the memory of a suspended process holds."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


class SuspendedWork:
    """Seconds of work per job that are lost if its suspended process ends."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[int, float]] = {}
        """job → the last lease of its process, and seconds under this one and those before"""

    def add(self, job_id: str, lease: int, seconds: float) -> None:
        """Count the work of a lease whose process was suspended."""
        self._held[job_id] = lease, self._held.get(job_id, (0, 0.0))[1] + seconds

    def take(self, job_id: str) -> float:
        """Return the seconds of a job and forget them: it has no such process now."""
        return self._held.pop(job_id, (0, 0.0))[1]

    def lease_of(self, job_id: str) -> int | None:
        """Return the last lease of a job's suspended process; None without one."""
        return self._held[job_id][0] if job_id in self._held else None

    def leases(self) -> Iterator[tuple[str, int]]:
        """Yield each job with such work and the last lease of its process."""
        yield from [(job_id, lease) for job_id, (lease, _) in self._held.items()]

    def saved(self) -> dict[str, tuple[int, float]]:
        """Return all seconds, for ``restore``."""
        return dict(self._held)

    def restore(self, saved: Mapping[str, Sequence[Any]]) -> None:
        """Take the seconds that ``saved`` returned."""
        self._held = {job: (int(lease), float(seconds)) for job, (lease, seconds) in saved.items()}
