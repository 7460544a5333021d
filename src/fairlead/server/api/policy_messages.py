"""Messages of the REST API about the scheduling policy."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from fairlead.model.submission.bounds import ROUND_RANGE
from fairlead.model.submission.fields import JsonNumber
from fairlead.model.tenants.weight_scope import WeightScope

_Round = Annotated[float, Field(ge=ROUND_RANGE.least, le=ROUND_RANGE.most), JsonNumber()]
_Spec = Annotated[str, Field(min_length=1, max_length=1000)]


class PolicyChange(BaseModel):
    """Changes of the scheduling policy; fields left out keep their values.

    A new policy without a mechanism brings its own mechanism.
    """

    model_config = ConfigDict(extra="forbid")

    policy: _Spec | None = None
    mechanism: _Spec | None = None
    round_s: _Round | None = None
    """length of a round"""
    weight_scope: WeightScope | None = None
    """jobs with which weights and priorities of jobs are compared"""
    speeds: Annotated[str, Field(min_length=1)] | None = None
    """content of a speed table, CSV or Gavel JSON"""


class PolicyView(BaseModel):
    """The scheduling policy in force."""

    policy: str
    mechanism: str
    round_s: float | None
    weight_scope: WeightScope
    speeds: str
    """number of speeds in the table, and a hash of them"""
    set_by: Literal["start", "live"]
    """the start-up settings, or a change of the running server"""
    changed_at: float | None
    """time of the live change"""
    changed_by: str | None
    """name of its author; for admins and viewers"""
