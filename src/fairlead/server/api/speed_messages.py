"""Messages of the REST API about measured speeds and the speed table."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from fairlead.model.speeds.key import Consolidation, SpeedSource


class SpeedView(BaseModel):
    """Believed speed of a workload on an accelerator."""

    model_config = ConfigDict(extra="forbid")

    workload: str
    """empty for a job that names none"""
    tenant: str | None
    """tenant whose jobs have measured the workload; none: believed of all tenants' jobs"""
    job: str | None
    """the job that the speed belongs to alone, because it names no workload"""
    gang: int
    accelerator: str
    placement: Consolidation
    """on as few nodes as the gang needs, or spread over more"""
    steps_per_s: float
    source: SpeedSource
    """measured by running jobs, from the speed table, or assumed"""
    age_s: float | None
    """seconds since the measured speed last changed"""
    low: float | None = None
    """an assumed speed is above this with 90 % probability; none: not assumed, or not stated"""
    high: float | None = None
    """an assumed speed is below this with 90 % probability"""
    planned_steps_per_s: float | None = None
    """speed that decisions use instead of an assumed one; none: the same"""
    declared_steps_per_s: float | None = None
    """speed that the tenant has declared, on which an assumed one rests; none: not declared"""


class MeasuredSpeedView(BaseModel):
    """Speed that running jobs have measured."""

    workload: str
    """empty for a job that names none"""
    tenant: str
    """tenant whose jobs have measured it, and of whose jobs it is believed"""
    job: str | None
    """the job that the speed belongs to alone, because it names no workload"""
    gang: int
    accelerator: str
    placement: Consolidation
    """on as few nodes as the gang needs, or spread over more"""
    steps_per_s: float
    """0: the job ran out of the device's memory there"""
    age_s: float
    """seconds since the speed last changed"""
    table_steps_per_s: float | None
    """speed of the server's table; none: it has no such entry"""


class MeasuredPairView(BaseModel):
    """Speed that jobs have measured beside a partner on the same devices."""

    workload: str
    tenant: str
    partner: str
    """workload of the other job; empty for a tenant that the reader may not see"""
    partner_tenant: str
    """empty for a tenant that the reader may not see"""
    gang: int
    accelerator: str
    steps_per_s: float
    """0: the two ran out of the device's memory"""
    alone_steps_per_s: float
    """believed speed without a partner"""
    age_s: float
    """seconds since the speed last changed"""


class SpeedsImport(BaseModel):
    """Speeds to add to the server's table."""

    model_config = ConfigDict(extra="forbid")

    speeds: Annotated[str, Field(min_length=1)]
    """content of a speed table, CSV or Gavel JSON"""
    replace: bool = False
    """whether to drop the table's other entries"""


class SpeedsImported(BaseModel):
    """The server's table after an import."""

    imported: int
    """entries of the imported table"""
    speeds: str
    """number of speeds in the server's table, and a hash of them"""


class SpeedsForgotten(BaseModel):
    """Answer to a request to forget measured speeds."""

    forgotten: int
    """speeds that were dropped"""
