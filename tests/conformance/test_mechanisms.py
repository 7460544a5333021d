"""Every registered mechanism passes the conformance suite, which detects violations."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.conformance.registered import NAMES, make_mechanism

from fairlead.mechanisms.srtf import Srtf
from fairlead.model.capabilities import Capabilities
from fairlead.model.lease import Placement, Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.testing.contract import ContractViolationError
from fairlead.testing.mechanisms.suite import (
    CHECKS,
    check_no_job_starves,
    check_plans_are_valid_and_all_jobs_finish,
    check_survives_node_changes,
    decision_s,
)

MAX_DECISION_S = 0.25


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("name", NAMES)
def test_mechanism_conforms(name: str, check: Any) -> None:
    check(lambda: make_mechanism(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_plan_for_1000_jobs_on_500_devices_takes_at_most_a_quarter_second(name: str) -> None:
    assert decision_s(lambda: make_mechanism(name)) < MAX_DECISION_S


# -- the suite itself ---------------------------------------------------------------------------


@dataclass(frozen=True)
class InvalidPlacements(Srtf):
    """Shortest remaining time first with invalid placements."""

    def plan(self, snap: Snapshot, memory: None) -> tuple[Plan, None]:
        plan, memory = super().plan(snap, memory)
        start = [self.replace_placement(snap, placement) for placement in plan.start]
        return replace(plan, start=Placements.of(start)), memory

    def replace_placement(self, snap: Snapshot, placement: Placement) -> Placement:
        raise NotImplementedError


class OnOneDevice(InvalidPlacements):
    def replace_placement(self, snap: Snapshot, placement: Placement) -> Placement:
        del snap
        return placement._replace(devices=placement.devices[:1])


class OnDeadDevices(InvalidPlacements):
    def replace_placement(self, snap: Snapshot, placement: Placement) -> Placement:
        dead = np.setdiff1d(np.arange(len(snap.cluster.node_of)), snap.usable).tolist()
        count = len(placement.devices)
        return placement._replace(devices=(*dead, *placement.devices)[:count])


class WhereItCannotRun(InvalidPlacements):
    def replace_placement(self, snap: Snapshot, placement: Placement) -> Placement:
        row = snap.job.tolist().index(placement.job)
        if snap.speed[row, 2] > 0:
            return placement
        k80s = snap.usable[snap.cluster.accelerator_of[snap.usable] == 2].tolist()
        return placement._replace(devices=(*k80s, *placement.devices)[: len(placement.devices)])


class AllOnTheSameDevices(InvalidPlacements):
    def replace_placement(self, snap: Snapshot, placement: Placement) -> Placement:
        first: list[int] = snap.usable[: len(placement.devices)].tolist()
        return placement._replace(devices=tuple(first))


class NeverRunsGangs(Srtf):
    def plan(self, snap: Snapshot, memory: None) -> tuple[Plan, None]:
        plan, memory = super().plan(snap, memory)
        return replace(plan, start=plan.start.where(plan.start.size < 4)), memory

    def refill(self, snap: Snapshot, memory: None, idle: Any) -> Placements:
        more = super().refill(snap, memory, idle)
        return more.where(more.size < 4)


@dataclass(frozen=True)
class CountsInSecret(Srtf):
    calls: list[int] = field(default_factory=list)

    def plan(self, snap: Snapshot, memory: None) -> tuple[Plan, None]:
        self.calls.append(1)
        plan, memory = super().plan(snap, memory)
        return replace(plan, until=plan.until + len(self.calls)), memory


@dataclass(frozen=True)
class WritesIntoItsMemory(Srtf):
    def initial(self) -> Any:
        return {"plans": [0]}

    def plan(self, snap: Snapshot, memory: Any) -> Any:
        plan, _ = super().plan(snap, None)
        memory["plans"].append(1)
        return plan, memory


class ChangesTheSnapshot(Srtf):
    def plan(self, snap: Snapshot, memory: None) -> tuple[Plan, None]:
        snap.steps[:] += 1.0
        return super().plan(snap, memory)


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        (OnOneDevice, "gets 1 devices"),
        (WhereItCannotRun, "cannot run where it starts"),
        (AllOnTheSameDevices, "two units"),
        (NeverRunsGangs, "jobs still wait"),
        (CountsInSecret, "different plan"),
        (WritesIntoItsMemory, "plan changed its memory"),
        (ChangesTheSnapshot, "plan changed the snapshot"),
    ],
)
def test_suite_detects_broken_mechanisms(mechanism: type[Srtf], message: str) -> None:
    with pytest.raises(ContractViolationError, match=message):
        check_plans_are_valid_and_all_jobs_finish(mechanism)


def test_suite_detects_plans_on_lost_nodes() -> None:
    with pytest.raises(ContractViolationError, match="unusable devices"):
        check_survives_node_changes(OnDeadDevices)


class ClaimsNoStarvation(Srtf):
    capabilities: ClassVar[Capabilities] = replace(Srtf.capabilities, starvation_free=True)


def test_suite_detects_a_false_claim_of_no_starvation() -> None:
    with pytest.raises(ContractViolationError, match="did not finish during the stream"):
        check_no_job_starves(ClaimsNoStarvation)
