"""Messages of requests for many jobs."""

from typing import Annotated, Any, Literal

from annotated_types import Len
from pydantic import BaseModel, ConfigDict

from fairlead.model.submission.batch import MAX_BATCH
from fairlead.model.submission.new_job import Label, Name
from fairlead.server.api.job_messages import JobChange, JobView

_MAX_KEY = 100


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid")


class JobBatch(_Message):
    """Jobs to submit together."""

    jobs: Annotated[list[dict[str, Any]], Len(1, MAX_BATCH)]
    """the fields of each job, as for `POST /v1/jobs`"""
    common: dict[str, Any] = {}
    """fields of all jobs that do not set them; environment variables are combined"""
    idempotency_key: Annotated[Label, Len(0, _MAX_KEY)] = ""
    """text by which the server recognises a repeated request; it gives job 17 the key TEXT/17"""


class JobChanges(_Message):
    """A change of several jobs."""

    action: Literal["cancel", "suspend", "resume", "change"]
    jobs: Annotated[list[Name], Len(1, MAX_BATCH)]
    """ids, each once"""
    force: bool = False
    """kill the processes of cancelled jobs at once"""
    set: JobChange | None = None
    """the new values of the action change"""
    partial: bool = False
    """change the other jobs if some do not exist, have ended or exceed a cap"""


class RejectedJob(_Message):
    """A job that was not changed."""

    id: str
    code: str
    """code of the error"""
    message: str


class ChangedJobs(_Message):
    """The result of a change of several jobs."""

    jobs: list[JobView]
    """those that were not rejected, in the order of the request"""
    rejected: list[RejectedJob]
