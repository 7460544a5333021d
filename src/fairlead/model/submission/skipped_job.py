"""Jobs of traces and instances that are left out because they can never run."""

from dataclasses import dataclass

from fairlead.model.errors import InputError


@dataclass(frozen=True, slots=True)
class SkippedJob:
    """A job that was left out, and the reason."""

    id: str
    reason: str

    @classmethod
    def of(cls, job_id: str, error: InputError) -> "SkippedJob":
        """Return the job with the error's problem as the reason."""
        return cls(job_id, error.problem)
