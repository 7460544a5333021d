"""Messages of the REST API about the running round."""

from typing import Literal

from pydantic import BaseModel

Action = Literal["start", "stop", "move"]


class PlannedChange(BaseModel):
    """A job that starts, stops or moves to other devices when the round ends."""

    job: str
    tenant: str
    action: Action
    accelerators: dict[str, int]
    """accelerator → devices that it will hold; empty if it stops"""


class RoundView(BaseModel):
    """The running round, and the changes that the next one begins with."""

    ends_at: float | None
    """null if no round runs: the next plan is applied at once"""
    plan_at: float | None
    """time at which the plan of the next round is requested; null if it was"""
    planned: bool
    """whether the plan is known, and with it the changes"""
    changes: list[PlannedChange]
    """those of jobs that the reader may see"""
    hidden: int
    """changes of other jobs"""
