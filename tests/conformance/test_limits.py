"""Limits under every mechanism: no tenant ever holds more, and what it may not hold others do."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from tests.conformance.registered import NAMES, made

from fairlead.core import Scheduler
from fairlead.mechanisms.srtf import Srtf
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster
from fairlead.model.commands import Command, ComputePlan, Launch
from fairlead.model.job import Job, Tenant
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario
from fairlead.testing.mechanisms.checked import watched
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
            total_steps=20_000 + 3_000 * i,
            tenant=tenant,
            arrival_at=200.0 * i,
            accelerators=("v100", "p100") if tenant == "red" else None,
            utilization=0.3,
            memory_gib=2.0,
        )
        for i in range(8)
        for tenant in ("red", "pink", "blue")
    ]


def held(scheduler: Scheduler[Any], tenants: Sequence[str], kind: str) -> float:
    """Return the devices of a kind that tenants' leases hold, parts of packed ones as parts.

    Whoever waits for a device that is being vacated has his part of it already.
    """
    leases, cluster = scheduler.leases, scheduler.cluster
    mine = np.array(
        [
            slot
            for slot in leases.staying
            if scheduler.jobs.jobs[leases.job[slot]].tenant in tenants
        ]
    )
    stays = np.isin(leases.holder, leases.staying)
    shared_by = stays.sum(axis=0)
    np.add.at(shared_by, scheduler.waiting.device, 1)
    part = np.isin(leases.holder, mine).sum(axis=0) / np.maximum(shared_by, 1)
    return float(part[cluster.accelerator_of == cluster.accelerators.index(kind)].sum())


@pytest.mark.parametrize("name", NAMES)
def test_no_tenant_holds_more_than_its_limit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    most_seen = most_held(made(name), jobs(), monkeypatch)
    assert most_seen["red", "v100"] == 3.0


@pytest.mark.parametrize("name", ["shares", "units", "capacity"])
def test_limits_count_what_jobs_need_on_each_accelerator(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs: dict[str, Any] = {"gang": 1, "accelerators": ("v100", "p100"), "gangs": {"p100": 2}}
    listed = [replace(job, **needs) if job.tenant == "red" else job for job in jobs()]
    most_seen = most_held(made(name), listed, monkeypatch)
    assert most_seen["red", "p100"] == 2.0


def most_held(
    mechanism: Any, listed: Sequence[Job], monkeypatch: pytest.MonkeyPatch
) -> dict[tuple[str, str], float]:
    """Return the most that tenants with a limit ever hold of it, after checking that they may."""
    most_seen: dict[tuple[str, str], float] = {}
    handle = Scheduler.handle

    def watching(scheduler: Scheduler[Any], event: ev.Event) -> list[Command]:
        commands = handle(scheduler, event)
        launched = {
            scheduler.jobs.jobs[job].tenant
            for command in commands
            if isinstance(command, Launch)
            for job in command.on.job.tolist()
        }
        for tenants, limit in MOST.items():
            # One whose partner on a device has gone holds all of it, until the next plan.
            for kind, most in limit.items() if launched & set(tenants) else ():
                found = held(scheduler, tenants, kind)
                assert found <= most + 1e-9, f"{tenants} hold {found} {kind}, not {most}"
                most_seen[tenants[0], kind] = max(most_seen.get((tenants[0], kind), 0.0), found)
        return commands

    monkeypatch.setattr(Scheduler, "handle", watching)
    record, _ = simulate(
        Scenario(
            cluster=CLUSTER,
            speeds=SPEEDS,
            jobs=listed,
            tenants=LIMITED,
            mechanism=watched(mechanism, listed),
        )
    )
    assert not np.isnan(record.finished_at).any()
    return most_seen


def test_lowered_limit_takes_the_youngest_leases_back(monkeypatch: pytest.MonkeyPatch) -> None:
    after: list[float] = []
    handle = Scheduler.handle

    def watching(scheduler: Scheduler[Any], event: ev.Event) -> list[Command]:
        commands = handle(scheduler, event)
        if isinstance(event, ev.PlanReady) and event.at > 2000.0:
            after.append(held(scheduler, ("blue",), "v100"))
        return commands

    monkeypatch.setattr(Scheduler, "handle", watching)
    listed = [replace(job, tenant="blue", arrival_at=0.0) for job in jobs()]
    listed = [replace(job, id=str(i)) for i, job in enumerate(listed)]
    simulate(
        Scenario(
            cluster=CLUSTER,
            speeds=SPEEDS,
            jobs=listed,
            mechanism=made("gandiva-fair"),
            node_events=cast(Any, [ev.TenantChanged(1000.0, Tenant("blue", limit={"v100": 1.0}))]),
        )
    )
    assert after
    assert max(after) <= 1.0


def test_what_waits_for_devices_minds_a_limit_that_came_meanwhile() -> None:
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
    """Ask for a plan and apply it."""
    commands = scheduler.handle(ev.PlanDue(at))
    (asked,) = (one for one in commands if isinstance(one, ComputePlan))
    plan, memory = scheduler.mechanism.plan(asked.snapshot, asked.memory)
    scheduler.handle(ev.PlanReady(at, asked.version, plan, memory))
