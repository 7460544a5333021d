"""Simulations of the benchmark: which there are, and what each of them measures."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from benchmarks.schedules.cases import (
    SHARED,
    Case,
    continuous_cases,
    philly_cases,
    static_cases,
)
from benchmarks.schedules.sia import sia_cases

from fairlead.files import read_cluster, read_speeds
from fairlead.mechanisms.factory import create_mechanism
from fairlead.mechanisms.shares import Shares
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray
from fairlead.model.capabilities import Capabilities, capabilities_of
from fairlead.model.snapshot import Snapshot
from fairlead.policies.fairlead import Fairlead
from fairlead.sim.driver import simulate
from fairlead.sim.record import Record
from fairlead.sim.scenario import Scenario

ROUND_S = 360.0
RESTART_S = (0.0, 60.0)
WRONG = 3.0
"""greatest factor between declared and true lengths"""
WRONG_LENGTHS = "fairlead, wrong lengths"
COMPARED = ("max-min", "fairlead")
"""policies compared by completion time"""
REALISED = ("max-min", "finish-time", "makespan")
"""policies whose rounds with gangs are compared with the fluid ideal"""
TABLE = SHARED / "data/gavel/simulation_throughputs.json.gz"


@dataclass(frozen=True)
class WrongLengths:
    """`fairlead` with wrong lengths: every job's total is off by a factor up to WRONG."""

    policy: Fairlead

    @property
    def capabilities(self) -> Capabilities:
        """Those of the policy."""
        return capabilities_of(self.policy)

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return the policy's shares for the wrong lengths."""
        return self.policy.allocate(_with_wrong_lengths(snap))

    def device_value(self, snap: Snapshot) -> FloatArray:
        """Return the policy's values of devices for the wrong lengths."""
        return self.policy.device_value(_with_wrong_lengths(snap))


def _with_wrong_lengths(snap: Snapshot) -> Snapshot:
    factor = [WRONG ** (2 * random.Random(job).random() - 1) for job in snap.job.tolist()]
    return replace(snap, total_steps=snap.total_steps * factor)


@dataclass(frozen=True, order=True)
class Run:
    """One simulation: a trace under a policy, in rounds with a restart cost or fluid."""

    case: str
    policy: str
    restart_s: float = 0.0
    fluid: bool = False

    @property
    def name(self) -> str:
        """The key of its result."""
        return f"{self.case}, {'fluid' if self.fluid else f'{self.restart_s:g} s'}, {self.policy}"

    def mechanism(self) -> Any:
        """Return the mechanism to simulate."""
        if self.fluid:
            return create_mechanism(self.policy, "ideal")
        if self.policy == WRONG_LENGTHS:
            return Shares(WrongLengths(Fairlead()), ROUND_S)
        return create_mechanism(self.policy, None, ROUND_S)


@dataclass(frozen=True)
class Outcome:
    """Measurements of one simulation."""

    completion_s: Sequence[float]
    """jobs → seconds from submission to end"""
    makespan_s: float
    preemptions: int


def run(case: Case, mechanism: Any, restart_s: float = 0.0) -> Record:
    """Return the record of a case under a mechanism."""
    scenario = Scenario(
        cluster=read_cluster(case.cluster),
        speeds=case.speeds,
        jobs=case.jobs,
        mechanism=mechanism,
        restore_cost_s=restart_s,
    )
    return simulate(scenario)[0]


def completion_s(case: Case, record: Record) -> FloatArray:
    """Return jobs → seconds from submission to end."""
    jct: FloatArray = record.finished_at - np.array([job.arrival_at for job in case.jobs])
    return jct


def perform(of: Run) -> Outcome:
    """Return the outcome of a simulation of one of the cases."""
    case = cases()[of.case]
    record = run(case, of.mechanism(), of.restart_s)
    return Outcome(
        completion_s(case, record).tolist(),
        float(record.finished_at.max()),
        int(record.preemptions.sum()),
    )


@cache
def cases() -> dict[str, Case]:
    """Return name → case, of all cases."""
    speeds = read_speeds(TABLE)
    made = [
        *continuous_cases(speeds),
        *philly_cases(speeds),
        *sia_cases(),
        *static_cases(speeds),
    ]
    return {case.name: case for case in made}


def has_gangs(case: str) -> bool:
    """Return whether the trace is one of generated gangs."""
    return case.startswith(("gangs ", "static "))


def runs_of(case: str) -> list[Run]:
    """Return the simulations of a case."""
    runs = []
    if not case.startswith("static "):
        runs += [Run(case, "isolated", fluid=True), Run(case, WRONG_LENGTHS)]
        runs += [Run(case, policy, cost) for cost in RESTART_S for policy in COMPARED]
    if has_gangs(case):
        runs += [Run(case, policy, fluid=fluid) for policy in REALISED for fluid in (True, False)]
    return list(dict.fromkeys(runs))
