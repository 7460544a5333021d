"""Recovery of the stored jobs; a damaged document fails its own job and no other."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fairlead.core.queries import Queries
from fairlead.live.inputs.inbox import Inbox
from fairlead.live.job_spec import JobSpec, read_spec
from fairlead.model import events as ev
from fairlead.model.errors import FairleadError
from fairlead.model.job import Job
from fairlead.quarantine import quarantine_text
from fairlead.store import Put, Remove, Store

_DAMAGED = (FairleadError, ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""errors of ``read_spec`` for a document that holds anything"""


@dataclass(frozen=True, slots=True)
class StoredJobs:
    """Specifications of jobs, and the reasons why others cannot be read."""

    specs: dict[str, JobSpec]
    damaged: dict[str, str]
    """job → message for its owner"""

    @classmethod
    def read(cls, store: Store, data: Path) -> "StoredJobs":
        """Return the jobs of a store; copies of damaged documents go to the quarantine."""
        jobs = cls({}, {})
        for job_id, document in store.documents("job").items():
            try:
                jobs.specs[job_id] = _read(job_id, document)
            except _DAMAGED as error:
                reason = f"{type(error).__name__}: {error}"[:200]
                place = quarantine_text(data, f"job-{job_id}.json", document, reason)
                jobs.damaged[job_id] = (
                    f"the stored job is damaged ({reason}); its document is in {place}:"
                    " submit the job again"
                )
        return jobs

    def fail_damaged(
        self, queries: Queries, specs: dict[str, JobSpec], messages: dict[str, str], inbox: Inbox
    ) -> None:
        """Fail the damaged jobs that have not ended; all of them keep a place in the lists."""
        for job_id, message in self.damaged.items():
            number = queries.find_job(job_id)
            if number is None:
                inbox.post(_no_events, [Remove("job", job_id)])
                continue
            specs[job_id] = _placeholder(queries.job(number))
            messages[job_id] = message
            make = _no_events if queries.has_ended(number) else partial(_failure, job_id)
            inbox.post(make, [Put("job", job_id, specs[job_id].document())])


def _no_events(_: float) -> list[ev.Event]:
    return []


def _failure(job_id: str, at: float) -> list[ev.Event]:
    return [ev.JobFailed(at, job_id)]


def _read(job_id: str, document: str) -> JobSpec:
    spec = read_spec(document)
    if spec.id != job_id:
        raise ValueError(f"it is the document of job {spec.id!r}")
    return spec


def _placeholder(job: Job) -> JobSpec:
    """Return the specification of a job whose own one is lost; its command fails."""
    return JobSpec(
        id=job.id, tenant=job.tenant, workload=job.workload, gang=job.gang, command=("false",)
    )
