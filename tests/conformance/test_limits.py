"""Tenant limits hold under every mechanism, and other tenants use the rest."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from tests.conformance.registered import NAMES, make_mechanism

from fairlead.core import Scheduler
from fairlead.mechanisms.srtf import Srtf
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster
from fairlead.model.commands import Command, ComputePlan, Launch
from fairlead.model.job import Job
from fairlead.model.tenants.tenant import Tenant
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario
from fairlead.testing.mechanisms.checked import checked_mechanism
from fairlead.testing.mechanisms.scenarios import SPEEDS

CLUSTER = Cluster.of({"v100": 8, "p100": 8, "k80": 4}, per_node=4)
LIMITED = (
    Tenant("org", limit={"v100": 3.0}),
    Tenant("red", parent="org", limit={"p100": 2.0}),
    Tenant("pink", parent="org"),
    Tenant("blue"),
)
MOST = {("red", "pink"): {"v100": 3}, ("red",): {"p100": 2}}


def jobs() -> list[Job]:
    return [
        Job(
            id=f"{tenant}-{i}",
            workload=("big", "small", "cnn")[i % 3],
            gang=(1, 2, 1)[i % 3],
            total_steps=5_000 + 750 * i,
            tenant=tenant,
            arrival_at=50.0 * i,
            accelerators=("v100", "p100") if tenant == "red" else None,
            utilization=0.3,
            memory_gib=2.0,
        )
        for i in range(8)
        for tenant in ("red", "pink", "blue")
    ]


def held(scheduler: Scheduler[Any], tenants: Sequence[str], accelerator: str) -> float:
    """Return the devices of an accelerator that tenants' leases hold, packed ones in parts.

    Jobs that wait for a device count as holders of their part.
    """
    leases, cluster = scheduler.leases, scheduler.cluster
    slots = np.array(
        [
            slot
            for slot in leases.active_slots
            if scheduler.jobs.jobs[leases.job[slot]].tenant in tenants
        ]
    )
    stays = np.isin(leases.holder, leases.active_slots)
    shared_by = stays.sum(axis=0)
    np.add.at(shared_by, scheduler.waiting.device, 1)
    part = np.isin(leases.holder, slots).sum(axis=0) / np.maximum(shared_by, 1)
    return float(part[cluster.accelerator_of == cluster.accelerators.index(accelerator)].sum())


@pytest.mark.parametrize("name", NAMES)
def test_no_tenant_holds_more_than_its_limit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    most_seen = most_held(make_mechanism(name), jobs(), monkeypatch)
    assert most_seen["red", "v100"] == 3.0


@pytest.mark.parametrize("name", ["shares", "units", "capacity"])
def test_limits_count_devices_of_per_accelerator_gangs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs: dict[str, Any] = {"gang": 1, "accelerators": ("v100", "p100"), "gangs": {"p100": 2}}
    listed = [replace(job, **needs) if job.tenant == "red" else job for job in jobs()]
    most_seen = most_held(make_mechanism(name), listed, monkeypatch)
    assert most_seen["red", "p100"] == 2.0


def most_held(
    mechanism: Any, listed: Sequence[Job], monkeypatch: pytest.MonkeyPatch
) -> dict[tuple[str, str], float]:
    """Return the maximum that limited tenants ever hold; assert that it is within the limit."""
    most_seen: dict[tuple[str, str], float] = {}
    handle = Scheduler.handle

    def checked_handle(scheduler: Scheduler[Any], event: ev.Event) -> list[Command]:
        commands = handle(scheduler, event)
        launched = {
            scheduler.jobs.jobs[job].tenant
            for command in commands
            if isinstance(command, Launch)
            for job in command.on.job.tolist()
        }
        for tenants, limit in MOST.items():
            # A job whose partner has left holds the whole device until the next plan.
            for accelerator, most in limit.items() if launched & set(tenants) else ():
                devices = held(scheduler, tenants, accelerator)
                assert devices <= most + 1e-9, f"{tenants} hold {devices} of {most} {accelerator}"
                key = tenants[0], accelerator
                most_seen[key] = max(most_seen.get(key, 0.0), devices)
        return commands

    monkeypatch.setattr(Scheduler, "handle", checked_handle)
    record, _ = simulate(
        Scenario(
            cluster=CLUSTER,
            speeds=SPEEDS,
            jobs=listed,
            tenants=LIMITED,
            mechanism=checked_mechanism(mechanism, listed),
        )
    )
    assert not np.isnan(record.finished_at).any()
    return most_seen


def test_lowered_limit_preempts_the_youngest_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    after: list[float] = []
    handle = Scheduler.handle

    def checked_handle(scheduler: Scheduler[Any], event: ev.Event) -> list[Command]:
        commands = handle(scheduler, event)
        if isinstance(event, ev.PlanReady) and event.at > 600.0:
            after.append(held(scheduler, ("blue",), "v100"))
        return commands

    monkeypatch.setattr(Scheduler, "handle", checked_handle)
    listed = [replace(job, tenant="blue", arrival_at=0.0) for job in jobs()]
    listed = [replace(job, id=str(i)) for i, job in enumerate(listed)]
    simulate(
        Scenario(
            cluster=CLUSTER,
            speeds=SPEEDS,
            jobs=listed,
            mechanism=make_mechanism("gandiva-fair"),
            node_events=cast(Any, [ev.TenantChanged(300.0, Tenant("blue", limit={"v100": 1.0}))]),
        )
    )
    assert max(after) == 1.0


def test_waiting_jobs_respect_a_new_limit() -> None:
    cluster = Cluster.of({"v100": 2}, per_node=2)
    scheduler: Scheduler[Any] = Scheduler(cluster, SPEEDS, Srtf())
    for name, steps in (("long", 9000.0), ("longer", 9900.0)):
        scheduler.handle(ev.JobSubmitted(0.0, Job(id=name, workload="big", total_steps=steps)))
    decide(scheduler, 0.0)
    for name in ("short", "shorter"):
        job = Job(id=name, workload="big", total_steps=10.0, tenant="red")
        scheduler.handle(ev.JobSubmitted(1.0, job))
    decide(scheduler, scheduler.round_end_at or 0.0)
    assert len(scheduler.waiting) == 2
    at = scheduler.round_end_at or 0.0
    scheduler.handle(ev.TenantChanged(at, Tenant("red", limit={"v100": 1.0})))
    leaving = scheduler.leases.lease[scheduler.leases.leaving]
    scheduler.handle(ev.LeasesEnded(at, leaving, np.ones(2), "left"))
    assert held(scheduler, ("red",), "v100") == 1.0


def decide(scheduler: Scheduler[Any], at: float) -> None:
    """Compute a plan and apply it."""
    commands = scheduler.handle(ev.PlanDue(at))
    (request,) = (command for command in commands if isinstance(command, ComputePlan))
    plan, memory = scheduler.mechanism.plan(request.snapshot, request.memory)
    scheduler.handle(ev.PlanReady(at, request.version, plan, memory))
