"""Renewals of leases: the report of a gang's member and the answer to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NotRequired, TypedDict


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """Report of one member of a gang, which asks for its lease to be renewed."""

    rank: int
    started: int
    """steps that it has started"""
    steps: float
    """steps that it has made"""
    steps_per_s: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    leaving: bool = False
    """it starts no more steps"""
    first_step_s: float | None = None
    """seconds since its first step under this lease began"""
    last_step_s: float | None = None
    """seconds since its last step ended"""


class RenewalAnswer(TypedDict):
    """Answer to a member of a gang, as JSON carries it."""

    valid_s: float
    """seconds that it may run without contact to the server"""
    again_s: float
    """seconds until it should renew again"""
    leave: bool
    """it must leave"""
    leave_after: int | None
    """the gang's last step, known once all members have reported the steps they started"""
    emulated_steps_per_s: NotRequired[float | None]
    """speed of an emulated accelerator, when it has changed"""
