"""Keys of measured speeds."""

from typing import Literal, NamedTuple, Protocol

Consolidation = Literal["consolidated", "spread"]
"""placement of a gang: on as few nodes as possible, or over more nodes"""
PLACEMENTS: tuple[Consolidation, ...] = ("consolidated", "spread")
SpeedSource = Literal["measured", "table", "assumed"]
"""origin of a believed speed: running jobs, the speed table, or an estimate"""


class SpeedKey(NamedTuple):
    """The subject of a measured speed: one gang of one workload on one accelerator.

    ``partner`` is the workload packed onto the same devices, None for a job that runs alone.
    """

    workload: str
    gang: int
    accelerator: str
    placement: Consolidation = "consolidated"
    partner: str | None = None


class NamesWorkload(Protocol):
    """A job, or the part of it that decides which measured speeds count for it."""

    @property
    def id(self) -> str:
        """The job's id."""

    @property
    def tenant(self) -> str:
        """Its tenant."""

    @property
    def workload(self) -> str:
        """Its workload; empty: none."""


_SEPARATOR = "\x1f"
"""separates the parts of a scoped workload; no name may contain it"""


class WorkloadScope(NamedTuple):
    """The jobs for which a measured speed counts: those of a tenant's workload, or one job."""

    tenant: str
    workload: str
    job: str | None = None
    """the only job, because it names no workload"""


def scoped_workload(tenant: str, workload: str, job_id: str) -> str:
    """Return the workload under which the speed that a job measures is kept.

    Jobs report their own speeds, so a report counts for jobs of the same tenant only. A job
    that names no workload has a scope of its own.
    """
    parts = ("", tenant, workload) if workload else ("", tenant, "", job_id)
    return _SEPARATOR.join(parts)


def scope_of(workload: str) -> WorkloadScope | None:
    """Return the scope of a workload; None for a plain one of a speed table."""
    if not workload.startswith(_SEPARATOR):
        return None
    return WorkloadScope(*workload.split(_SEPARATOR)[1:])


def plain_workload(workload: str) -> str:
    """Return the name of a workload in speed tables, without its scope."""
    scope = scope_of(workload)
    return workload if scope is None else scope.workload
