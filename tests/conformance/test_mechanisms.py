"""Every registered mechanism keeps what the conformance suite asks of it, and the suite bites."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.conformance.registered import NAMES, made

from fairlead.mechanisms.srtf import Srtf
from fairlead.model.lease import Placement, Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.testing.contract import BrokenPromiseError
from fairlead.testing.mechanisms.suite import (
    CHECKS,
    check_nobody_starves,
    check_plans_can_be_carried_out_and_all_jobs_finish,
    check_survives_loss_return_and_arrival_of_nodes,
    decision_s,
)

MOST_S = 0.25


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("name", NAMES)
def test_mechanism_conforms(name: str, check: Any) -> None:
    check(lambda: made(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_thousand_jobs_on_500_devices_are_decided_in_a_quarter_second(name: str) -> None:
    assert decision_s(lambda: made(name)) < MOST_S


# -- the suite itself ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Spoilt(Srtf):
    """Shortest remaining time first, whose plans a test spoils."""

    def plan(self, snap: Snapshot, memory: None) -> tuple[Plan, None]:
        plan, memory = super().plan(snap, memory)
        start = [self.spoil(snap, placement) for placement in plan.start]
        return replace(plan, start=Placements.of(start)), memory

    def spoil(self, snap: Snapshot, placement: Placement) -> Placement:
        raise NotImplementedError


class OnOneDevice(Spoilt):
    def spoil(self, snap: Snapshot, placement: Placement) -> Placement:
        del snap
        return placement._replace(devices=placement.devices[:1])


class OnDeadDevices(Spoilt):
    def spoil(self, snap: Snapshot, placement: Placement) -> Placement:
        dead = np.setdiff1d(np.arange(len(snap.cluster.node_of)), snap.usable).tolist()
        count = len(placement.devices)
        return placement._replace(devices=(*dead, *placement.devices)[:count])


class WhereItCannotRun(Spoilt):
    def spoil(self, snap: Snapshot, placement: Placement) -> Placement:
        row = snap.job.tolist().index(placement.job)
        if snap.speed[row, 2] > 0:
            return placement
        k80s = snap.usable[snap.cluster.accelerator_of[snap.usable] == 2].tolist()
        return placement._replace(devices=(*k80s, *placement.devices)[: len(placement.devices)])


class AllOnTheSameDevices(Spoilt):
    def spoil(self, snap: Snapshot, placement: Placement) -> Placement:
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
    ("kind", "said"),
    [
        (OnOneDevice, "gets 1 devices"),
        (WhereItCannotRun, "cannot run where it starts"),
        (AllOnTheSameDevices, "held by two units"),
        (NeverRunsGangs, "jobs still wait"),
        (CountsInSecret, "gave another plan"),
        (WritesIntoItsMemory, "memory it was given was changed"),
        (ChangesTheSnapshot, "snapshot it was given was changed"),
    ],
)
def test_suite_finds_what_a_mechanism_must_not_do(kind: type[Srtf], said: str) -> None:
    with pytest.raises(BrokenPromiseError, match=said):
        check_plans_can_be_carried_out_and_all_jobs_finish(kind)


def test_suite_finds_plans_that_use_lost_nodes() -> None:
    with pytest.raises(BrokenPromiseError, match="devices that are down"):
        check_survives_loss_return_and_arrival_of_nodes(OnDeadDevices)


class Promising(Srtf):
    starves_nobody: ClassVar[bool] = True


def test_suite_finds_a_false_promise_that_nobody_starves() -> None:
    with pytest.raises(BrokenPromiseError, match="did not finish while short ones kept coming"):
        check_nobody_starves(Promising)
