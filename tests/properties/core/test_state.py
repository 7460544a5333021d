"""A scheduler restored from a saved state continues exactly as the one that saved it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fairlead.core import (
    Scheduler,
    decode_event,
    encode_event,
    load_state,
    save_state,
    state_bytes,
)
from fairlead.mechanisms.shares import Shares
from fairlead.model.cluster import Cluster, Node
from fairlead.model.events import (
    Event,
    JobCancelled,
    JobChanged,
    JobHeld,
    JobReleased,
    JobsRemoved,
    JobSubmitted,
    NodeAdded,
    NodeLost,
    NodeReturned,
)
from fairlead.model.job import Job
from fairlead.model.lease import Placement, Placements
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.usage_decay import History
from fairlead.policies.max_min import MaxMin
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario

CLUSTER = Cluster.of({"v100": 3, "k80": 4})
SPEEDS = SpeedTable(
    {
        SpeedKey(workload, gang, name): speed * gang
        for workload, fast in (("a", 3.0), ("b", 1.2))
        for name, speed in (("v100", fast), ("k80", 1.0))
        for gang in (1, 2)
    }
)


def scheduler() -> Scheduler[Any]:
    return Scheduler(CLUSTER, SPEEDS, Shares(MaxMin(), round_s=100.0))


def history_of(seed: int) -> list[Event]:
    rng = np.random.default_rng(seed)
    jobs = tuple(
        Job(
            id=f"j{i}",
            workload="ab"[int(rng.integers(2))],
            gang=int(rng.integers(1, 3)),
            total_steps=float(rng.integers(50, 4000)),
            arrival_at=float(i * rng.integers(0, 120)),
            tenant="xy"[int(rng.integers(2))],
        )
        for i in range(14)
    )
    node = CLUSTER.nodes[0].id
    events: list[Event] = []
    simulate(
        Scenario(
            cluster=CLUSTER,
            speeds=SPEEDS,
            jobs=tuple(sorted(jobs, key=lambda job: job.arrival_at)),
            mechanism=Shares(MaxMin(), round_s=100.0),
            tenants=(Tenant("x", 2.0),),
            history=History(1000.0),
            node_events=(NodeLost(350.0, node), NodeReturned(900.0, node)),
            on_event=events.append,
        )
    )
    return events


@pytest.mark.parametrize("seed", range(12))
def test_restored_scheduler_continues_from_any_event(seed: int) -> None:
    lines = [encode_event(event) for event in history_of(seed)]
    whole = scheduler()
    memory_type = type(whole.memory)
    cut = int(np.random.default_rng(seed).integers(1, len(lines)))
    for line in lines[:cut]:
        whole.handle(decode_event(line, memory_type))
    restored = scheduler()
    load_state(restored, save_state(whole))
    assert state_bytes(restored) == state_bytes(whole)
    for line in lines[cut:]:
        expected = whole.handle(decode_event(line, memory_type))
        commands = restored.handle(decode_event(line, memory_type))
        assert [type(command) for command in commands] == [type(command) for command in expected]
    assert state_bytes(restored) == state_bytes(whole)
    assert save_state(restored) == save_state(whole)


@pytest.mark.parametrize("seed", range(3))
def test_removed_jobs_change_no_decision_and_no_number(seed: int) -> None:
    plain, removing = scheduler(), scheduler()
    memory_type, removed = type(plain.memory), 0
    for line in [encode_event(event) for event in history_of(seed)]:
        expected = plain.handle(decode_event(line, memory_type))
        commands = removing.handle(decode_event(line, memory_type))
        assert [type(command) for command in commands] == [type(command) for command in expected]
        jobs = removing.jobs
        ended = tuple(name for name, n in jobs.number.items() if jobs.has_ended(n))
        removal = decode_event(encode_event(JobsRemoved(0.0, ended)), memory_type)
        assert removing.handle(removal) == []
        removed += len(ended)
    assert removed == len(plain.jobs) == len(removing.jobs)
    for name, column in plain.jobs.columns().items():
        assert np.array_equal(removing.jobs.columns()[name], column, equal_nan=True)
    assert plain.leases.saved().keys() == removing.leases.saved().keys()
    restored = scheduler()
    load_state(restored, save_state(removing))
    assert state_bytes(restored) == state_bytes(removing)
    assert restored.jobs.ids == [""] * removed


@pytest.mark.parametrize("name", ["planned_from", "planned_epoch", "version", "changes"])
def test_state_bytes_include_the_state_of_planning(name: str) -> None:
    first, second = scheduler(), scheduler()
    assert state_bytes(first) == state_bytes(second)
    setattr(second, name, getattr(second, name) + 1)
    assert state_bytes(first) != state_bytes(second)


def test_state_bytes_include_the_order_of_free_slots() -> None:
    """The order in which leases end determines the numbers of later leases."""
    first, second = scheduler(), scheduler()
    for each, order in ((first, (0, 1)), (second, (1, 0))):
        for name in ("a", "b"):
            each.handle(JobSubmitted(0.0, Job(id=name, workload=name, total_steps=1.0)))
        both = Placements.of([Placement(number, 0, (number,)) for number in (0, 1)])
        lease = each.leases.start(both, 0.0)
        for number in order:
            each.leases.close(each.leases.slots(lease[[number]]))
    assert state_bytes(first) != state_bytes(second)
    again = [each.leases.start(both, 1.0).tolist() for each in (first, second)]
    assert again[0] != again[1]


def test_a_mixed_gang_matters_to_the_state_while_it_runs() -> None:
    alike, mixed, restored = scheduler(), scheduler(), scheduler()
    leases = []
    for each, devices in ((alike, (0, 1)), (mixed, (0, 3))):
        each.handle(JobSubmitted(0.0, Job(id="a", workload="a", gang=2, total_steps=1.0)))
        leases.append(each.leases.start(Placements.of([Placement(0, 0, devices)]), 0.0))
    load_state(restored, save_state(mixed))
    assert alike.leases.simple
    assert not mixed.leases.simple
    assert not restored.leases.simple
    assert state_bytes(alike) != state_bytes(mixed)
    for each, lease in zip((alike, mixed), leases, strict=True):
        each.leases.close(each.leases.slots(lease))
    assert mixed.leases.simple
    assert state_bytes(alike) == state_bytes(mixed)


def test_open_leases_survive_a_restore_after_nodes_have_joined() -> None:
    first, second = scheduler(), scheduler()
    for event in history_of(0)[:40]:
        first.handle(decode_event(encode_event(event), type(first.memory)))
    assert len(first.leases) == len(first.leases.open) > 0
    first.handle(NodeAdded(1e6, Node("new", ("v100",) * 3)))
    load_state(second, save_state(first))
    assert len(second.leases) == len(first.leases)
    assert state_bytes(second) == state_bytes(first)


def test_held_and_changed_jobs_are_restored() -> None:
    first = scheduler()
    lines = [encode_event(event) for event in history_of(0)]
    for line in lines[:40]:
        first.handle(decode_event(line, type(first.memory)))
    number = int(first.jobs.active[0])
    job = first.jobs.jobs[number]
    at = 1e6
    first.handle(JobHeld(at, job.id))
    assert number not in first.jobs.active
    other = first.jobs.jobs[int(first.jobs.active[0])]
    first.handle(JobChanged(at, replace(other, priority=7, weight=3.0)))
    second = scheduler()
    load_state(second, save_state(first))
    assert state_bytes(second) == state_bytes(first)
    for each in (first, second):
        each.handle(JobReleased(at, job.id))
        assert number in each.jobs.active
        each.handle(JobCancelled(at, other.id))
    assert state_bytes(second) == state_bytes(first)
    assert second.jobs.jobs[first.jobs.number[other.id]].priority == 7
