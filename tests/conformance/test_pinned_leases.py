"""Pinned leases keep their devices under every mechanism; all jobs still finish."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.conformance.registered import NAMES, make_mechanism

from fairlead.core import Scheduler, load_state, replay, save_state, state_bytes
from fairlead.core.event_log import encode_event
from fairlead.core.tenant_usage import charge_pinned
from fairlead.model import events as ev
from fairlead.model.commands import Command, ComputePlan, Preempt, SetTimer
from fairlead.model.tenants.tenant import Tenant
from fairlead.sim.driver import simulate
from fairlead.testing.mechanisms.checked import checked_mechanism
from fairlead.testing.mechanisms.scenarios import nodes_come_and_go

NEVER_PREEMPT = ("allox", "capacity")
"""mechanisms that preempt no job in the scenario"""


class Pinning:
    """Pins the leases of every third job before each decision, and checks the decision."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kept = 0
        self.log: list[str] = []
        handle = Scheduler.handle

        def checked_handle(scheduler: Scheduler[Any], event: ev.Event) -> list[Command]:
            decides = isinstance(event, ev.PlanDue | ev.PlanReady | ev.RoundEnd)
            if decides:
                pins = ev.LeasesPinned(event.at, self._chosen(scheduler))
                self.log.append(encode_event(pins))
                assert handle(scheduler, pins) == []
            pinned = {int(scheduler.leases.lease[slot]) for slot in scheduler.leases.pinned}
            self.log.append(encode_event(event))
            commands = handle(scheduler, event)
            if decides:
                self._check(commands, pinned)
            return commands

        monkeypatch.setattr(Scheduler, "handle", checked_handle)

    def _chosen(self, scheduler: Scheduler[Any]) -> Any:
        leases = scheduler.leases
        slots = leases.active_slots
        return leases.lease[slots[leases.job[slots] % 3 == 0]]

    def _check(self, commands: Sequence[Command], pinned: set[int]) -> None:
        for command in commands:
            if isinstance(command, Preempt):
                assert not pinned & set(command.lease.tolist())
                self.kept += len(pinned)


@pytest.mark.parametrize("name", NAMES)
def test_no_plan_preempts_a_pinned_lease(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = nodes_come_and_go(make_mechanism(name))
    jobs = [
        replace(job, arrival_at=job.arrival_at / 5, total_steps=3 * job.total_steps)
        for job in scenario.jobs
    ]
    scenario = replace(
        scenario, jobs=jobs, mechanism=checked_mechanism(scenario.mechanism, jobs), node_events=[]
    )
    pinning = Pinning(monkeypatch)
    record, scheduler = simulate(scenario)
    assert np.isfinite(record.finished_at).all()
    assert pinning.kept > 0 or name in NEVER_PREEMPT
    monkeypatch.undo()
    assert scheduler is not None
    fresh = Scheduler(scenario.cluster, scenario.speeds, make_mechanism(name))
    assert state_bytes(replay(fresh, pinning.log)) == state_bytes(scheduler)


def test_pins_survive_saving_and_loading_and_end_with_their_lease() -> None:
    scenario = nodes_come_and_go(make_mechanism("shares"))
    scheduler = Scheduler(scenario.cluster, scenario.speeds, make_mechanism("shares"))
    scheduler.handle(ev.JobSubmitted(0.0, scenario.jobs[0]))
    (compute,) = scheduler.handle(ev.PlanDue(0.0))
    assert isinstance(compute, ComputePlan)
    plan, memory = scheduler.mechanism.plan(compute.snapshot, scheduler.memory)
    scheduler.handle(ev.PlanReady(0.0, 1, plan, memory))
    (lease,) = scheduler.leases.lease[scheduler.leases.open].tolist()
    scheduler.handle(ev.LeasesPinned(1.0, np.array([lease])))
    restored = Scheduler(scenario.cluster, scenario.speeds, make_mechanism("shares"))
    load_state(restored, save_state(scheduler))
    assert state_bytes(restored) == state_bytes(scheduler)
    assert len(restored.leases.pinned) == 1
    # The only job stays in place; a later plan may move it, once its pin has ended.
    assert SetTimer("PlanDue", 9.0 + 360.0) in scheduler.handle(ev.PlanDue(9.0))
    restored.handle(ev.LeasesEnded(2.0, np.array([lease]), np.array([0.0]), "left"))
    assert not restored.leases.pinned


def test_pinned_devices_count_against_their_tenant() -> None:
    tenants = [Tenant("a"), Tenant("b"), Tenant("inner", parent="b", weight=2.0)]
    # Of 8 devices, a and b are entitled to 4 each, and all of b's belong to the tenant inside.
    active = np.array([True, False, True])
    charged = charge_pinned(tenants, active, np.array([1, 0, 4]), 8)
    assert [tenant.weight for tenant in charged] == [0.75, 1 / 64, 2 / 64]
    assert charge_pinned(tenants, active, np.array([0, 0, 0]), 8) == tenants


def test_tenants_without_jobs_do_not_change_what_pinned_devices_count() -> None:
    tenants = [Tenant("a"), Tenant("b"), *(Tenant(f"idle-{i}") for i in range(6))]
    tenants.append(Tenant("inner", parent="idle-0", weight=9.0))
    active = np.array([True, True, *[False] * 7])
    charged = charge_pinned(tenants, active, np.array([2, 0, *[0] * 7]), 8)
    assert [tenant.weight for tenant in charged[:2]] == [0.5, 1.0]
    before = charge_pinned(tenants, None, np.array([2, 0, *[0] * 7]), 8)
    assert [tenant.weight for tenant in before[:2]] == [1 / 64, 1.0]  # by earlier versions
