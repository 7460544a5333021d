"""Results of jobs that outlive their leases: last metrics and the last exit."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fairlead.store import Put

KIND = "job-result"
_MAX_CODES = 64
"""exit codes kept of a gang"""


@dataclass(slots=True)
class JobResult:
    """Last values of a job's metrics, and the exit of its last finished or failed lease."""

    metrics: dict[str, float | None] = field(default_factory=dict)
    """null for a value that is not finite"""
    exit_lease: int | None = None
    exit_codes: tuple[int, ...] = ()
    """by rank"""
    message: str = ""
    """message of that lease, or about the end of the job"""

    def document(self, job_id: str) -> Put:
        """Return the document that holds the result."""
        return Put(KIND, job_id, json.dumps(asdict(self)))


class JobResults:
    """Results by job id."""

    def __init__(self) -> None:
        self._by_job: dict[str, JobResult] = {}

    def of(self, job_id: str) -> JobResult:
        """Return a job's result, an empty one if it has none."""
        return self._by_job.get(job_id) or JobResult()

    def messages(self) -> dict[str, str]:
        """Return job → message of its last finished or failed lease."""
        return {
            job_id: result.message for job_id, result in self._by_job.items() if result.message
        }

    def update_metrics(self, job_id: str, metrics: Mapping[str, float | None]) -> None:
        """Take the newest values of a job's metrics."""
        if metrics:
            self._by_job.setdefault(job_id, JobResult()).metrics.update(metrics)

    def record_exit(self, job_id: str, lease: int, codes: tuple[int, ...]) -> None:
        """Take the exit codes of a finished or failed lease."""
        result = self._by_job.setdefault(job_id, JobResult())
        result.exit_lease, result.exit_codes = lease, codes[:_MAX_CODES]

    def forget(self, job_id: str) -> None:
        """Drop the result of a job that is no longer kept."""
        self._by_job.pop(job_id, None)

    def record_message(self, job_id: str, message: str) -> None:
        """Take the message about the end of a lease or of the job."""
        self._by_job.setdefault(job_id, JobResult()).message = message

    def restore(self, documents: Mapping[str, str]) -> None:
        """Take the stored results; skip damaged ones, which nothing depends on."""
        for job_id, text in documents.items():
            try:
                self._by_job[job_id] = _read(json.loads(text))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                continue


def _read(saved: Mapping[str, Any]) -> JobResult:
    metrics = {
        str(name): None if value is None else float(value)
        for name, value in saved["metrics"].items()
    }
    lease = saved["exit_lease"]
    codes = tuple(int(code) for code in saved["exit_codes"])
    message = str(saved.get("message", ""))
    return JobResult(metrics, None if lease is None else int(lease), codes, message)
