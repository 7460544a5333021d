"""A submitted job as the server describes it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

ENDED_STATES = ("finished", "failed", "cancelled")
"""states that a job does not leave"""
STATES = ("queued", "running", "suspended", *ENDED_STATES)


class SubmittedJob(dict[str, Any]):
    """A job's state at the time of the request: the server's answer, with typed attributes.

    Fields without an attribute are items: ``job["preemptions"]``.
    """

    @property
    def id(self) -> str:
        """Id of the job."""
        return str(self["id"])

    @property
    def name(self) -> str:
        """Name that the submitter chose, or an empty text."""
        return str(self["name"])

    @property
    def tenant(self) -> str:
        """Tenant of the job."""
        return str(self["tenant"])

    @property
    def state(self) -> str:
        """``queued``, ``running``, ``suspended``, ``finished``, ``failed`` or ``cancelled``."""
        return str(self["state"])

    @property
    def has_ended(self) -> bool:
        """Whether the job has finished, failed or been cancelled."""
        return self.state in ENDED_STATES

    @property
    def has_succeeded(self) -> bool:
        """Whether the job has finished."""
        return self.state == "finished"

    @property
    def steps_done(self) -> float:
        """Steps done so far."""
        return float(self["steps_done"])

    @property
    def total_steps(self) -> int | None:
        """Steps after which the job finishes; None if it has no such number."""
        return None if self["total_steps"] is None else int(self["total_steps"])

    @property
    def metrics(self) -> Mapping[str, float]:
        """Last value of each metric that the job has reported."""
        known = self["metrics"].items()
        return {str(key): float(value) for key, value in known if value is not None}

    @property
    def message(self) -> str:
        """Reason for the job's state, where there is one."""
        return str(self["message"])


class RejectedJob(NamedTuple):
    """A job that a request for many has not changed."""

    id: str
    code: str
    """code of the error"""
    message: str


class ChangedJobs(NamedTuple):
    """The result of a change of several jobs."""

    jobs: list[SubmittedJob]
    rejected: list[RejectedJob]

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> "ChangedJobs":
        """Return the result that the server's answer describes."""
        rejected = [
            RejectedJob(one["id"], one["code"], one["message"]) for one in answer["rejected"]
        ]
        return cls([SubmittedJob(job) for job in answer["jobs"]], rejected)
