"""Invariants of simulations with packed jobs, for random units and shares."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.core import Scheduler, decode_event, encode_event, replay, state_bytes
from fairlead.mechanisms.ideal import Ideal
from fairlead.mechanisms.units import Units
from fairlead.model import events as ev
from fairlead.model.allocation import Allocation, Column
from fairlead.model.cluster import Cluster
from fairlead.model.commands import Command, ComputePlan, Launch, Preempt
from fairlead.model.events import Event, LeasesEnded, NodeLost, NodeReturned
from fairlead.model.job import Job
from fairlead.model.lease_outcome import LoggedOutcome
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario

ACCELERATORS = ("v100", "k80")
SOLO = {"big": (8.0, 2.0), "small": (2.0, 1.5), "cnn": (5.0, 3.0)}
PACKED = {"big": 0.55, "small": 0.9, "cnn": 0.7}
"""workload → fraction of its solo speed that a partner keeps"""
SPEEDS = SpeedTable(
    {
        SpeedKey(name, gang, accelerator, partner=partner): speed
        * gang
        * PACKED.get(partner or "", 1.0)
        for name, row in SOLO.items()
        for partner in (None, *SOLO)
        for gang in (1, 2)
        for accelerator, speed in zip(ACCELERATORS, row, strict=True)
    }
)


@dataclass(frozen=True)
class RandomUnits:
    """Feasible shares of random units of up to three jobs; deterministic for the same jobs."""

    seed: int

    def allocate(self, snap: Snapshot) -> Allocation:
        rng = np.random.default_rng([self.seed, *snap.job.tolist()])
        units = [[row] for row in range(len(snap.job))]
        for _ in range(2 * len(snap.job)):
            some = rng.choice(len(snap.job), size=min(int(rng.integers(2, 4)), len(snap.job)))
            unit = {int(row) for row in some if snap.gang[row] == snap.gang[some[0]]}
            if len(unit) > 1 and sorted(unit) not in units:
                units.append(sorted(unit))
        fits = snap.gang[[unit[0] for unit in units]][:, None] <= snap.capacity
        share = (
            rng.random((len(units), len(ACCELERATORS)))
            * (rng.random((len(units), 1)) < 0.6)
            * fits
        )
        inside = np.array([[row in unit for row in range(len(snap.job))] for unit in units])
        devices = (share * snap.gang[[unit[0] for unit in units]][:, None]).sum(axis=0)
        share /= max(
            (inside.T @ share).sum(axis=1).max(),
            (devices / np.maximum(snap.capacity, 1)).max(),
            1e-9,
        )
        members = np.array([[*snap.job[unit], -1, -1][:3] for unit in units])
        return Allocation(members, share, tuple(Column(j) for j in range(len(ACCELERATORS))))


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    counts = {name: draw(st.integers(2, 4)) for name in ACCELERATORS}
    jobs = [
        Job(
            id=f"j{i}",
            workload=draw(st.sampled_from(list(SOLO))),
            gang=draw(st.sampled_from([1, 1, 2])),
            total_steps=draw(st.integers(1, 6_000)),
            arrival_at=float(draw(st.integers(0, 2000))),
        )
        for i in range(draw(st.integers(2, 9)))
    ]
    cluster = Cluster.of(counts, per_node=draw(st.sampled_from([None, 1, 2])))
    node_events: list[NodeLost | NodeReturned] = []
    for at, index in draw(
        st.lists(st.tuples(st.integers(1, 2000), st.integers(0, 7)), max_size=2)
    ):
        node = cluster.nodes[index % len(cluster.nodes)].id
        node_events += [NodeLost(float(at), node), NodeReturned(float(at + 700), node)]
    return Scenario(
        cluster=cluster,
        speeds=SPEEDS,
        jobs=sorted(jobs, key=lambda job: job.arrival_at),
        mechanism=Units(
            RandomUnits(draw(st.integers(0, 99))), draw(st.sampled_from([60.0, 360.0]))
        ),
        restore_cost_s=draw(st.sampled_from([0.0, 7.5])),
        checkpoint_s=100.0,
        node_events=sorted(node_events, key=lambda event: event.at),
        intervals=True,
    )


common = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Observer:
    """A second scheduler that handles the same events and so returns the same launches."""

    def __init__(self, scenario: Scenario) -> None:
        mechanism: Any = scenario.mechanism
        self.scheduler: Scheduler[Any] = Scheduler(scenario.cluster, SPEEDS, mechanism)
        self.running: dict[int, tuple[int, tuple[int, ...], float]] = {}
        """lease → job, devices, start of progress"""
        self._restore_s = scenario.restore_cost_s
        self._began: set[int] = set()
        self.on_change: Callable[[float], None] | None = None

    def __call__(self, event: Event) -> None:
        if self.on_change:
            self.on_change(event.at)
        if isinstance(event, LeasesEnded):
            for lease in event.lease.tolist():
                del self.running[lease]
        for command in self.scheduler.handle(event):
            if isinstance(command, Launch):
                for lease, unit in zip(command.lease.tolist(), command.on, strict=True):
                    restore_s = self._restore_s if unit.job in self._began else 0.0
                    self._began.add(unit.job)
                    self.running[lease] = unit.job, unit.devices, event.at + restore_s


@common
@given(scenarios())
def test_units_share_all_their_devices_and_no_job_runs_twice(scenario: Scenario) -> None:
    observer = Observer(scenario)
    accelerator_of = scenario.cluster.accelerator_of

    def check(event: Event) -> None:
        observer(event)
        jobs = [job for job, _, _ in observer.running.values()]
        assert len(set(jobs)) == len(jobs)
        held = [(job, set(devices)) for job, devices, _ in observer.running.values()]
        for job, devices in held:
            assert len(devices) == scenario.jobs[job].gang
            assert len({int(accelerator_of[d]) for d in devices}) == 1
            for _, others in held:
                assert others == devices or not others & devices

    simulate(replace(scenario, on_event=check))


@common
@given(scenarios())
def test_every_job_makes_exactly_the_steps_of_its_devices_and_partners(
    scenario: Scenario,
) -> None:
    """Steps at the end of a lease equal a sum over intervals by the speeds table."""
    observer = Observer(scenario)
    steps = np.zeros(len(scenario.jobs))
    last, compared = 0.0, 0

    def work(at: float) -> None:
        nonlocal last
        for job, devices, progress_from in observer.running.values():
            others = [o for o, on, _ in observer.running.values() if o != job and on == devices]
            workload = scenario.jobs[job].workload
            on = [
                scenario.cluster.accelerators[scenario.cluster.accelerator_of[d]] for d in devices
            ]
            partners: list[str | None] = [scenario.jobs[o].workload for o in others]
            rate = min(SPEEDS.speed(workload, on, partner=p) for p in partners or [None])
            steps[job] += rate * max(at - max(last, progress_from), 0.0)
        last = at

    observer.on_change = work

    def check(event: Event) -> None:
        nonlocal compared
        before = dict(observer.running)
        observer(event)
        if isinstance(event, LeasesEnded):
            for lease, kept in zip(event.lease.tolist(), event.steps.tolist(), strict=True):
                job = before[lease][0]
                if event.outcome == "lost":
                    assert kept <= steps[job] + 1e-6
                    steps[job] = kept
                compared += 1
                np.testing.assert_allclose(steps[job], kept, rtol=1e-9, atol=1e-6)

    record, _ = simulate(replace(scenario, on_event=check))
    assert not np.isnan(record.finished_at).any()
    assert compared >= len(scenario.jobs)


@common
@given(scenarios())
def test_time_of_a_shared_device_is_counted_once(scenario: Scenario) -> None:
    observer = Observer(scenario)
    busy, last = 0.0, 0.0

    def count(at: float) -> None:
        nonlocal busy, last
        busy += (at - last) * len({d for _, on, _ in observer.running.values() for d in on})
        last = at

    observer.on_change = count
    record, _ = simulate(replace(scenario, on_event=observer))
    np.testing.assert_allclose(record.device_s.sum(), busy, rtol=1e-9, atol=1e-6)


@common
@given(scenarios())
def test_replay_of_a_packed_log_reproduces_the_state_exactly(scenario: Scenario) -> None:
    log: list[str] = []
    memory = type(Units(RandomUnits(0)).initial())

    def write(event: Event) -> None:
        log.append(encode_event(event))
        assert encode_event(decode_event(log[-1], memory)) == log[-1]

    _, after = simulate(replace(scenario, on_event=write))
    assert after is not None
    mechanism: Any = scenario.mechanism
    fresh: Scheduler[Any] = Scheduler(scenario.cluster, SPEEDS, mechanism)
    assert state_bytes(replay(fresh, log)) == state_bytes(after)


@common
@given(scenarios())
def test_fluid_units_progress_by_their_shares(scenario: Scenario) -> None:
    """Within one event interval, the first completion follows from the rate alone."""
    jobs = [replace(job, arrival_at=0.0) for job in scenario.jobs]
    policy = RandomUnits(3)
    mechanism: Any = Ideal(policy)
    plain = replace(scenario, jobs=jobs, mechanism=mechanism, node_events=())
    scheduler: Scheduler[Any] = Scheduler(scenario.cluster, SPEEDS, Units(policy))
    for job in jobs:
        scheduler.handle(ev.JobSubmitted(0.0, job))
    allocation = policy.allocate(scheduler.snapshot(0.0, 0.0))
    rate = np.zeros(len(jobs))
    for unit, shares in zip(allocation.members.tolist(), allocation.share, strict=True):
        inside = [number for number in unit if number >= 0]
        for number in inside:
            name, gang = jobs[number].workload, jobs[number].gang
            slow = min([PACKED[jobs[o].workload] for o in inside if o != number], default=1.0)
            rate[number] += sum(shares * np.array(SOLO[name])) * gang * slow
    with np.errstate(divide="ignore"):
        alone_s = np.array([job.total_steps for job in jobs]) / rate
    first = int(np.argmin(alone_s))
    if not np.isfinite(alone_s[first]):
        return
    record, _ = simulate(replace(plain, window=(first, first + 1)))
    np.testing.assert_allclose(record.finished_at[first], alone_s[first], rtol=1e-9)
    busy = record.device_s.sum(axis=0) / alone_s[first]
    assert (busy <= scenario.cluster.counts * (1 + 1e-9)).all()


def test_packed_launch_waits_for_the_end_of_preempted_leases() -> None:
    """With leases that end in any order and early plans, no job runs twice."""
    rng = np.random.default_rng(9)
    shared = 0
    for seed in range(12):
        shared += _drive_with_random_order(seed, rng)
    assert shared > 50


def _drive_with_random_order(seed: int, rng: np.random.Generator) -> int:
    mechanism: Any = Units(RandomUnits(seed), 60.0)
    cluster = Cluster.of({"v100": 3, "k80": 3})
    scheduler: Scheduler[Any] = Scheduler(cluster, SPEEDS, mechanism, plan_lead_s=10.0)
    held: dict[int, tuple[int, tuple[int, ...]]] = {}
    leaving: list[int] = []
    shared = 0

    def perform(commands: list[Command], at: float) -> None:
        nonlocal shared
        for command in commands:
            if isinstance(command, Launch):
                for lease, unit in zip(command.lease.tolist(), command.on, strict=True):
                    assert unit.job not in [job for job, _ in held.values()], "a job runs twice"
                    for other, (_, devices) in held.items():
                        if set(devices) & set(unit.devices):
                            assert devices == unit.devices
                            assert other not in leaving, "it starts next to a preempted lease"
                            shared += 1
                    held[lease] = unit.job, unit.devices
            elif isinstance(command, Preempt):
                leaving.extend(command.lease.tolist())
            elif isinstance(command, ComputePlan):
                plan, memory = mechanism.plan(command.snapshot, command.memory)
                perform(scheduler.handle(ev.PlanReady(at, command.version, plan, memory)), at)

    def end(at: float, lease: int, outcome: LoggedOutcome) -> None:
        leaving[:] = [other for other in leaving if other != lease]
        del held[lease]
        ended = ev.LeasesEnded(at, np.array([lease]), np.array([1.0]), outcome)
        perform(scheduler.handle(ended), at)

    for i in range(9):
        gang = 1 + int(rng.random() < 0.3)
        job = Job(id=f"j{i}", workload="small", total_steps=10**9, gang=gang)
        perform(scheduler.handle(ev.JobSubmitted(0.0, job)), 0.0)
    perform(scheduler.handle(ev.PlanDue(0.0)), 0.0)
    for turn in range(1, 30):
        at = turn * 60.0
        perform(scheduler.handle(ev.PlanDue(at - 10.0)), at - 10.0)
        if held and rng.random() < 0.3:  # between the plan's computation and its start
            end(at - 5.0, int(rng.choice(sorted(held))), "failed")
        perform(scheduler.handle(ev.RoundEnd(at)), at)
        while leaving and rng.random() < 0.9:
            end(at + 1.0, leaving[int(rng.integers(len(leaving)))], "left")
    return shared
