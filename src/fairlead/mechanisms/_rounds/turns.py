"""Turns of jobs: how long a job runs before others take its place, by the cost of restarts."""

import math
from typing import Literal

import numpy as np

from fairlead.mechanisms._rounds.deficits import CARRIED, OWED
from fairlead.model.arrays import FloatArray
from fairlead.model.errors import UsageError
from fairlead.model.snapshot import Snapshot

RestartOption = float | Literal["auto"] | None
"""cost of a restart in seconds; ``auto``: as measured; None: as the policy asks"""
_TURN_OVER_RESTART = 120.0
"""length of a turn over the cost of a restart: two hours for a minute"""
_TURN_OVER_RECEIVED = 0.25
"""greatest length of a turn over the time that its job has received: short jobs take short turns,
since they end later than on an equal split if they wait for the long turns of others"""


def check_restart_s(restart_s: RestartOption) -> None:
    """Raise UsageError unless the option is a cost, ``auto`` or omitted."""
    if restart_s is None or restart_s == "auto":
        return
    if not (math.isfinite(restart_s) and restart_s >= 0):
        raise UsageError(f"restart-s: {restart_s} not allowed: expected 0 or more, or auto")


def turn_of_all(round_s: float, restart_s: float) -> float:
    """Return the time by which a job may be ahead or behind if restarts cost all jobs this."""
    return max(round_s, _TURN_OVER_RESTART * restart_s)


def turns_of_jobs(snap: Snapshot, round_s: float) -> FloatArray | None:
    """Return jobs → length of its turns by the measured costs; None if restarts cost nothing."""
    if not np.count_nonzero(snap.restart_s):
        return None
    turn_s = _TURN_OVER_RESTART * snap.restart_s
    np.minimum(turn_s, _TURN_OVER_RECEIVED * snap.received_s.sum(axis=1), out=turn_s)
    longest: FloatArray = np.maximum(turn_s, round_s)
    return longest


def in_rounds(tables: FloatArray, turn_s: FloatArray, round_s: float) -> FloatArray:
    """Return an account's tables scaled so that a round owed stands for a turn of each job."""
    scaled = tables.copy()
    scaled[OWED : CARRIED + 1] *= (round_s / turn_s)[:, None]
    return scaled
