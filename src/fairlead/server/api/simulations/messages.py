"""Messages of the REST API about simulations."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from fairlead.data import DEFAULT_CLUSTER, DEFAULT_SPEEDS
from fairlead.model.submission.fields import JsonNumber


class NewSimulation(BaseModel):
    """A comparison of policies on an uploaded or a generated trace."""

    model_config = ConfigDict(extra="forbid")

    policies: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=200)]],
        Field(min_length=1, max_length=8),
    ]
    """names and options; the first is the baseline"""
    trace: Annotated[str, Field(min_length=1, max_length=2_000_000)] | None = None
    """content of a trace, CSV or JSONL; null: the bundled or a generated one"""
    bundled: bool = False
    """whether to use the bundled trace, of 120 jobs of three tenants"""
    jobs: Annotated[int, Field(ge=1, le=2000), JsonNumber()] = 100
    """jobs of a generated trace"""
    jobs_per_hour: Annotated[float, Field(gt=0, le=10_000), JsonNumber()] = 3.0
    """arrivals of a generated trace"""
    seed: Annotated[int, Field(ge=0, le=1 << 31), JsonNumber()] = 0
    cluster: Annotated[str, Field(min_length=1, max_length=1000)] = DEFAULT_CLUSTER
    """devices, such as v100=8,k80=16"""
    speeds: Annotated[str, Field(min_length=1, max_length=100)] = DEFAULT_SPEEDS
    """name of a bundled speed table"""


class SimulationView(BaseModel):
    """A simulation and, once it is done, its key figures."""

    id: str
    state: Literal["running", "done", "failed", "cancelled"]
    policies: list[str]
    cluster: str
    started_at: float
    done: int
    """policies simulated"""
    total: int
    """policies to simulate; 0 before it has begun"""
    error: str
    heads: list[str]
    rows: list[list[str]]
    """key figures of each policy, with the ratio to the first policy's"""
