"""Invariants of simulations, for random traces, clusters and policies."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.core import Scheduler, decode_event, encode_event, replay, state_bytes
from fairlead.mechanisms.factory import create_mechanism
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster
from fairlead.model.commands import Command, ComputePlan, Launch, Preempt
from fairlead.model.errors import InputError
from fairlead.model.events import Event, NodeLost, NodeReturned, PlanReady
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario

ACCELERATORS = ("v100", "p100", "k80")
WORKLOADS = {"big": (8.0, 4.0, 1.0), "small": (2.0, 2.2, 1.5), "cnn": (5.0, 3.0, 0.0)}
SPEEDS = SpeedTable(
    {
        SpeedKey(name, gang, accelerator): speed * gang**0.8
        for name, row in WORKLOADS.items()
        for gang in (1, 2, 4)
        for accelerator, speed in zip(ACCELERATORS, row, strict=True)
    }
)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    per_node = draw(st.sampled_from([None, 1, 2, 4]))
    counts = {name: draw(st.integers(1, 5)) for name in ACCELERATORS}
    max_gang = max(counts["v100"], counts["p100"])
    jobs = [
        Job(
            id=f"j{i}",
            workload=draw(st.sampled_from(list(WORKLOADS))),
            gang=draw(st.sampled_from([g for g in (1, 1, 2, 4) if g <= max_gang])),
            total_steps=draw(st.integers(1, 6_000)),
            arrival_at=float(draw(st.integers(0, 3000))),
            weight=draw(st.sampled_from([1.0, 1.0, 2.0])),
            tenant=draw(st.sampled_from(["red", "blue"])),
        )
        for i in range(draw(st.integers(1, 9)))
    ]
    policy = draw(st.sampled_from(["max-min", "max-min:agnostic", "fifo", "isolated", "makespan"]))
    mechanism = draw(st.sampled_from(["shares", "gavel"]))
    cluster = Cluster.of(counts, per_node=per_node)
    lost = draw(st.lists(st.tuples(st.integers(1, 2000), st.integers(0, 8)), max_size=3))
    node_events: list[NodeLost | NodeReturned] = []
    for at, index in lost:
        node = cluster.nodes[index % len(cluster.nodes)].id
        node_events += [NodeLost(float(at), node), NodeReturned(float(at + 700), node)]
    return Scenario(
        cluster=cluster,
        speeds=SPEEDS,
        jobs=sorted(jobs, key=lambda job: job.arrival_at),
        mechanism=create_mechanism(policy, mechanism, draw(st.sampled_from([60.0, 360.0]))),
        restore_cost_s=draw(st.sampled_from([0.0, 7.5])),
        node_events=sorted(node_events, key=lambda event: event.at),
        intervals=True,
    )


common = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@common
@given(scenarios())
def test_every_job_finishes_and_never_exceeds_its_fastest_speed(scenario: Scenario) -> None:
    record, _ = simulate(scenario)
    assert not np.isnan(record.finished_at).any()
    for i, job in enumerate(scenario.jobs):
        fastest = max(SPEEDS.speed(job.workload, [name] * job.gang) for name in ACCELERATORS)
        alone_s = job.total_steps / fastest
        assert record.finished_at[i] - job.arrival_at >= alone_s * (1 - 1e-9)
        assert record.device_s[i].sum() >= alone_s * job.gang * (1 - 1e-9)
        assert job.arrival_at <= record.started_at[i] <= record.first_steps_at[i]
        assert record.first_steps_at[i] <= record.finished_at[i] + 1e-9


@common
@given(scenarios())
def test_devices_hold_one_unit_and_gangs_stay_on_one_accelerator(scenario: Scenario) -> None:
    accelerator_of = scenario.cluster.accelerator_of
    gang = [job.gang for job in scenario.jobs]

    def check(event: Event) -> None:
        if isinstance(event, PlanReady):
            for assignment in event.plan.start:
                assert len(assignment.devices) == gang[assignment.job]
                assert len({int(accelerator_of[d]) for d in assignment.devices}) == 1

    record, _ = simulate(replace(scenario, on_event=check))
    assert record.intervals is not None
    _, device, _, start, end = record.intervals.columns()
    for first in np.unique(device):
        order = np.lexsort((end[device == first], start[device == first]))
        starts, ends = start[device == first][order], end[device == first][order]
        assert (starts[1:] >= ends[:-1] - 1e-9).all(), (
            "two leases held one device at the same time"
        )


@common
@given(scenarios())
def test_replay_of_the_log_reproduces_the_state_exactly(scenario: Scenario) -> None:
    log: list[str] = []
    _, after = simulate(replace(scenario, on_event=lambda event: log.append(encode_event(event))))
    assert after is not None
    mechanism: Any = scenario.mechanism
    fresh: Scheduler[Any] = Scheduler(scenario.cluster, SPEEDS, mechanism)
    assert state_bytes(replay(fresh, log)) == state_bytes(after)


@common
@given(scenarios())
def test_every_event_round_trips_through_the_log(scenario: Scenario) -> None:
    mechanism: Any = scenario.mechanism
    memory = type(mechanism.initial())

    def check(event: Event) -> None:
        line = encode_event(event)
        assert encode_event(decode_event(line, memory)) == line

    simulate(replace(scenario, on_event=check))


@common
@given(scenarios())
def test_simulation_is_deterministic(scenario: Scenario) -> None:
    first, _ = simulate(scenario)
    second, _ = simulate(scenario)
    np.testing.assert_array_equal(first.finished_at, second.finished_at)
    np.testing.assert_array_equal(first.device_s, second.device_s)


@common
@given(scenarios())
def test_no_usable_device_is_idle_while_a_job_waits(scenario: Scenario) -> None:
    """Refilling mechanisms are work-conserving for single-device jobs."""
    if scenario.node_events or any(job.gang > 1 for job in scenario.jobs):
        return
    scenario = replace(scenario, mechanism=create_mechanism("max-min", "shares", 360.0))
    record, _ = simulate(scenario)
    waits = record.started_at - np.array([job.arrival_at for job in scenario.jobs])
    assert record.intervals is not None
    _, device, _, start, end = record.intervals.columns()
    for i in np.flatnonzero(waits > 1e-6).tolist():
        job = scenario.jobs[i]
        middle = job.arrival_at + waits[i] / 2
        busy = set(device[(start <= middle) & (end > middle)].tolist())
        usable = [
            d
            for d, accelerator in enumerate(scenario.cluster.accelerator_of)
            if SPEEDS.speed(job.workload, [ACCELERATORS[accelerator]]) > 0
        ]
        assert set(usable) <= busy


def test_launch_waits_for_the_end_of_the_previous_lease() -> None:
    """Leases may end in any order."""
    rng = np.random.default_rng(5)
    mechanism: Any = create_mechanism("max-min", "shares", 60.0)
    cluster = Cluster.of({"v100": 3, "k80": 3})
    scheduler: Scheduler[Any] = Scheduler(cluster, SPEEDS, mechanism)
    jobs = [Job(id=f"j{i}", workload="small", total_steps=10**9) for i in range(9)]
    holder: dict[int, int] = {}
    _drive_with_random_order(scheduler, mechanism, jobs, holder, rng)
    assert len(set(holder.values())) == len(holder)


def _drive_with_random_order(
    scheduler: Scheduler[Any],
    mechanism: Any,
    jobs: list[Job],
    holder: dict[int, int],
    rng: np.random.Generator,
) -> None:
    job_of: dict[int, int] = {}
    leaving: list[int] = []

    def perform(commands: list[Command], at: float) -> None:
        for command in commands:
            if isinstance(command, Launch):
                for lease, assignment in zip(command.lease.tolist(), command.on, strict=True):
                    assert assignment.job not in holder.values(), "a job runs twice"
                    for device in assignment.devices:
                        assert device not in holder, "a device is held twice"
                        holder[device] = assignment.job
                    job_of[lease] = assignment.job
            elif isinstance(command, Preempt):
                leaving.extend(command.lease.tolist())
            elif isinstance(command, ComputePlan):
                plan, memory = mechanism.plan(command.snapshot, command.memory)
                perform(scheduler.handle(ev.PlanReady(at, command.version, plan, memory)), at)

    for job in jobs:
        perform(scheduler.handle(ev.JobSubmitted(0.0, job)), 0.0)
    for turn in range(40):
        at = turn * 60.0
        perform(scheduler.handle(ev.PlanDue(at)), at)
        while leaving:
            lease = leaving.pop(int(rng.integers(len(leaving))))
            for device in [d for d, job in holder.items() if job == job_of[lease]]:
                del holder[device]
            ended = ev.LeasesEnded(at, np.array([lease]), np.array([float(turn)]), "left")
            perform(scheduler.handle(ended), at)


def test_scheduler_rejects_a_job_whose_gang_does_not_fit() -> None:
    job = Job(id="a", workload="big", total_steps=1, gang=4)
    scenario = Scenario(
        cluster=Cluster.of({"v100": 2}),
        speeds=SPEEDS,
        jobs=[job],
        mechanism=create_mechanism("max-min"),
    )
    with pytest.raises(InputError, match="needs 4 devices"):
        simulate(scenario)
