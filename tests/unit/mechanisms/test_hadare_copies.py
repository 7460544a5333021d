"""HadarE's copies in the scheduler and in the simulator."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.mechanisms.hadar_inputs import few, scenario, snapshot

from fairlead.core import Scheduler, load_state, save_state
from fairlead.core.copies import limit_copies
from fairlead.core.jobs import JobState
from fairlead.mechanisms.hadar import hadare
from fairlead.mechanisms.hadar.hadare import HadarE
from fairlead.model import events as ev
from fairlead.model.arrays import IntArray
from fairlead.model.cluster import Cluster, Node
from fairlead.model.commands import Launch, MergeCopies, Preempt
from fairlead.model.job import Job
from fairlead.model.lease import Placement, Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.driver import simulate

# -- copies in the scheduler --------------------------------------------------------------------


class Scripted:
    """A mechanism whose plans are written by the tests."""

    def initial(self) -> int:
        return 0

    def plan(self, snap: Snapshot, memory: int) -> tuple[Plan, int]:
        raise AssertionError(snap, memory)


def forked(
    total_steps: float = 100.0, max_copies: int | None = None
) -> tuple[Scheduler[int], list[int]]:
    """Return a scheduler of one job with three copies, and their leases."""
    made = unforked(total_steps, max_copies)
    return made, launched(start_copies(made, 0.0)).lease.tolist()


def unforked(total_steps: float, max_copies: int | None) -> Scheduler[int]:
    table = SpeedTable({SpeedKey("m", 1, "v100"): 1.0})
    made = Scheduler(Cluster.of({"v100": 3}, per_node=1), table, Scripted())
    job = Job(id="a", workload="m", total_steps=total_steps, max_copies=max_copies)
    made.handle(ev.JobSubmitted(0.0, job))
    return made


def launched(commands: list[Any]) -> Launch:
    (launch,) = (c for c in commands if isinstance(c, Launch))
    return launch


def start_copies(made: Scheduler[int], at: float, stop: tuple[int, ...] = ()) -> list[Any]:
    made.handle(ev.PlanDue(at))
    units = Placements.of([Placement(0, copy + 1, (copy,), 40.0) for copy in range(3)])
    plan = Plan(np.array(stop, dtype=np.int64), units, at + 60.0, at + 60.0)
    return made.handle(ev.PlanReady(at, made.version, plan, 0))


def steps(made: Scheduler[int]) -> float:
    return float(made.snapshot(60.0, 60.0).steps[0])


def test_steps_of_copies_add_up_and_count_once() -> None:
    made, (a, b, c) = forked()
    made.handle(ev.Progress(30.0, np.array([a, b, c]), np.array([10.0, 20.0, 5.0])))
    assert steps(made) == 35.0
    made.handle(ev.Progress(40.0, np.array([a]), np.array([15.0])))
    assert steps(made) == 40.0
    made.handle(ev.LeasesEnded(50.0, np.array([b]), np.array([30.0]), "left"))
    assert steps(made) == 15.0 + 30.0 + 5.0
    made.handle(ev.LeasesEnded(60.0, np.array([a, c]), np.array([20.0, 10.0]), "left"))
    assert steps(made) == made.jobs.saved_steps[0] == 60.0


def test_the_last_copy_to_leave_has_the_job_merged() -> None:
    made, (a, b, c) = forked()
    first = made.handle(ev.LeasesEnded(50.0, np.array([b]), np.array([30.0]), "left"))
    assert not any(isinstance(command, MergeCopies) for command in first)
    last = made.handle(ev.LeasesEnded(60.0, np.array([a, c]), np.array([20.0, 10.0]), "left"))
    assert [command.job for command in last if isinstance(command, MergeCopies)] == [0]


def test_snapshots_name_leases_of_devices_only_while_copies_run() -> None:
    made, (a, b, c) = forked()
    assert made.snapshot(30.0, 60.0).holds_lease is not None
    made.handle(ev.LeasesEnded(50.0, np.array([a, b]), np.array([9.0, 9.0]), "left"))
    assert made.snapshot(50.0, 60.0).holds_lease is not None
    made.handle(ev.LeasesEnded(60.0, np.array([c]), np.array([9.0]), "left"))
    after = made.snapshot(60.0, 60.0)
    assert (after.holds_lease, after.on.tolist(), after.received_s.tolist()) == (
        None,
        [-1],
        [[50.0 + 50.0 + 60.0]],
    )


def test_copies_wait_until_those_of_the_round_before_are_merged() -> None:
    made, (a, b, c) = forked()
    commands = start_copies(made, 60.0, (a, b, c))
    assert any(isinstance(command, Preempt) for command in commands)
    assert not any(isinstance(command, Launch) for command in commands)
    for lease in (a, b):
        commands = made.handle(ev.LeasesEnded(61.0, np.array([lease]), np.array([9.0]), "left"))
        assert not any(isinstance(command, Launch) for command in commands)
    commands = made.handle(ev.LeasesEnded(62.0, np.array([c]), np.array([9.0]), "left"))
    types = [type(command) for command in commands if isinstance(command, (MergeCopies, Launch))]
    assert types == [MergeCopies, Launch]


def test_a_job_whose_copies_all_leave_holds_nothing_that_a_plan_could_stop() -> None:
    made, (a, b, c) = forked()
    start_copies(made, 60.0, (a, b))
    staying = made.snapshot(60.0, 60.0)
    assert (staying.on[0], staying.lease[0]) == (0, -1)
    made.handle(ev.JobHeld(61.0, "a"))
    made.handle(ev.JobReleased(62.0, "a"))
    leaving = made.snapshot(62.0, 62.0)
    assert (leaving.on[0], leaving.lease[0]) == (-1, -1)
    assert made.leases.is_open(np.array([a, c, -1])).tolist() == [False, False, False]


class Refilling(Scripted):
    """Starts every job that waits on the first idle device, as a whole."""

    def refill(self, snap: Snapshot, memory: int, idle: IntArray) -> Placements:
        del memory
        waiting = [int(job) for job, on in zip(snap.job, snap.on, strict=True) if on < 0]
        return Placements.of([Placement(job, 0, (int(idle[0]),)) for job in waiting[:1]])


def test_idle_devices_are_not_given_to_a_job_whose_copies_still_leave() -> None:
    table = SpeedTable({SpeedKey("m", 1, "v100"): 1.0})
    made = Scheduler(Cluster.of({"v100": 4}, per_node=1), table, Refilling())
    made.handle(ev.JobSubmitted(0.0, Job(id="a", workload="m", total_steps=100.0)))
    (a, b, c) = launched(start_copies(made, 0.0)).lease.tolist()
    made.handle(ev.JobHeld(1.0, "a"))
    made.handle(ev.JobReleased(2.0, "a"))
    commands = made.handle(ev.LeasesEnded(3.0, np.array([a]), np.array([5.0]), "lost"))
    assert not any(isinstance(command, Launch) for command in commands)
    for lease in (b, c):
        commands = made.handle(ev.LeasesEnded(4.0, np.array([lease]), np.array([5.0]), "left"))
    types = [type(command) for command in commands if isinstance(command, (MergeCopies, Launch))]
    assert types[0] == MergeCopies
    assert made.jobs.saved_steps[0] == 15.0


def test_a_job_is_done_when_its_copies_have_made_all_its_steps() -> None:
    made, (a, b, c) = forked(total_steps=90.0)
    for lease in (a, b):
        made.handle(ev.LeasesEnded(50.0, np.array([lease]), np.array([40.0]), "left"))
    assert made.jobs.state[0] == JobState.ACTIVE
    made.handle(ev.LeasesEnded(60.0, np.array([c]), np.array([10.0]), "left"))
    assert made.jobs.state[0] == JobState.FINISHED


def parts(launch: Launch) -> list[tuple[int, float]]:
    return [(unit.copy, unit.max_steps) for unit in launch.on]


def test_copies_of_a_job_that_declares_them_leave_the_last_step_to_the_job_itself() -> None:
    made = unforked(90.0, 3)
    first = launched(start_copies(made, 0.0))
    assert parts(first) == [(1, 30.0), (2, 30.0), (3, 29.0)]
    leases, steps = first.lease, np.array([30.0, 30.0, 29.0])
    again = start_copies(made, 60.0, tuple(leases.tolist()))  # planned before their steps count
    assert not any(isinstance(command, Launch) for command in again)
    for i in range(3):
        again = made.handle(ev.LeasesEnded(61.0, leases[i : i + 1], steps[i : i + 1], "left"))
    assert made.jobs.state[0] == JobState.ACTIVE
    assert parts(launched(again)) == [(0, math.inf)]


def test_copies_that_start_later_have_only_steps_that_no_other_copy_makes() -> None:
    made, (a, b, c) = forked(total_steps=100.0, max_copies=3)
    for lease, steps in ((a, 25.0), (b, 33.0)):
        made.handle(ev.LeasesEnded(50.0, np.array([lease]), np.array([steps]), "left"))
    # 58 steps are saved, the third copy is to make 33: two thirds of the other 8 are for copy 1.
    twin = Scheduler(made.cluster, made.beliefs, Scripted())
    load_state(twin, save_state(made))
    for each in (made, twin):
        one, other = (Placements.of([Placement(0, i, (i - 1,), 30.0 / i)]) for i in (1, 2))
        limited = limit_copies(each.jobs, each.leases, one, other)
        assert [unit.max_steps for unit in limited] == [6.0]
    assert c in made.leases.lease


# -- copies in the simulator ----------------------------------------------------------------------


def test_a_lost_copy_loses_its_own_steps_only() -> None:
    cluster = Cluster.of({"v100": 2}, per_node=1)
    job = Job(id="a", workload="big", total_steps=16_000)
    lost = [ev.NodeLost(300.0, "v100-1")]
    record, _ = simulate(scenario(cluster, [job], HadarE(), node_events=lost))
    # Two copies at 8 steps/s; the one that is lost after 300 s has no checkpoint yet.
    assert record.finished_at[0] == pytest.approx(16_000 / 8.0)


def test_copies_pay_the_restore_cost_every_round_but_the_first() -> None:
    cluster = Cluster.of({"v100": 2}, per_node=1)
    job = Job(id="a", workload="big", total_steps=16_000)
    free, _ = simulate(scenario(cluster, [job], HadarE()))
    paid, _ = simulate(scenario(cluster, [job], HadarE(), restore_cost_s=20.0))
    assert free.finished_at[0] == pytest.approx(1000.0)
    assert paid.finished_at[0] == pytest.approx(1000.0 + 2 * 20.0)
    assert paid.preemptions[0] == 0


@few
@given(st.data())
def test_rounds_in_which_nothing_changes_need_no_auction(data: st.DataObject) -> None:
    cluster = Cluster.of({"v100": 3, "k80": 2}, per_node=data.draw(st.sampled_from([1, 2])))
    steps = data.draw(st.lists(st.integers(1_000, 60_000), min_size=1, max_size=8))
    workloads = data.draw(
        st.lists(st.sampled_from(["big", "small"]), min_size=len(steps), max_size=len(steps))
    )
    jobs = [
        Job(id=f"j{i}", workload=workload, total_steps=length, arrival_at=700.0 * i)
        for i, (workload, length) in enumerate(zip(workloads, steps, strict=True))
    ]
    setup = scenario(cluster, jobs, HadarE(), restore_cost_s=5.0)
    record, _ = simulate(setup)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hadare, "_no_device_is_idle", lambda _: False)
        again, _ = simulate(setup)
    assert record.finished_at.tolist() == again.finished_at.tolist()
    assert record.preemptions.tolist() == again.preemptions.tolist()


def test_as_many_copies_as_told() -> None:
    cluster = Cluster.of({"v100": 4}, per_node=1)
    snap = snapshot(cluster, (1, (8.0,), 16_000))
    for copies, expected in ((0, 4), (1, 1), (3, 3)):
        mechanism = HadarE(copies=copies)
        plan, _ = mechanism.plan(snap, mechanism.initial())
        assert len(plan.start) == expected
        parts = [unit.max_steps for unit in plan.start]
        assert sum(parts) == pytest.approx(16_000 if expected > 1 else math.inf)


def test_live_only_declared_jobs_are_forked_up_to_their_number() -> None:
    cluster = Cluster.of({"v100": 4}, per_node=1)
    mechanism = HadarE(restart_s=10.0).forking_declared_jobs()
    undeclared = snapshot(cluster, (1, (8.0,), 16_000))
    for copies, steps, expected in ((0, 16_000, 1), (2, 16_000, 2), (9, 16_000, 4), (9, 80, 1)):
        snap = snapshot(cluster, (1, (8.0,), steps))
        profiles = replace(undeclared.profiles, max_copies=np.array([copies]))
        for seen in (replace(snap, profiles=profiles), *([] if copies else [undeclared])):
            plan, _ = mechanism.plan(seen, mechanism.initial())
            assert len(plan.start) == expected


def test_a_spread_gang_is_not_forked() -> None:
    cluster = Cluster.of({"v100": 4}, per_node=1)
    snap = snapshot(cluster, (2, (8.0,), 16_000))
    plan, _ = HadarE().plan(snap, HadarE().initial())
    assert [unit.copy for unit in plan.start] == [0]


def test_a_node_has_a_copy_on_each_of_its_accelerators() -> None:
    cluster = Cluster((Node("a", ("v100", "v100", "p100", "k80", "k80")),))
    snap = snapshot(cluster, (1, (8.0, 4.0, 2.0), 16_000))
    plan, _ = HadarE().plan(snap, HadarE().initial())
    accelerators = cluster.accelerator_of[[unit.devices[0] for unit in plan.start]]
    assert [unit.copy for unit in plan.start] == [1, 2, 3]
    assert sorted(accelerators.tolist()) == [0, 1, 2]
    assert [unit.max_steps for unit in plan.start] == pytest.approx(
        [16_000 * (8.0, 4.0, 2.0)[each] / 14.0 for each in accelerators]
    )
