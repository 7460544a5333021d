"""The scheduler's answers: events in, commands out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from fairlead.core import Scheduler
from fairlead.core.jobs import JobState
from fairlead.model import events as ev
from fairlead.model.cluster import Accelerator, Cluster
from fairlead.model.commands import ComputePlan, Launch, Preempt, Renew, SetTimer
from fairlead.model.errors import InputError, ProtocolError
from fairlead.model.job import Job, Tenant
from fairlead.model.lease import Placement, Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.placement import towards

SPEEDS = SpeedTable(
    {SpeedKey("m", gang, kind): 1.0 for gang in (1, 2, 3) for kind in ("v100", "k80")}
)


@dataclass
class Scripted:
    """A mechanism that remembers how often it was asked; its plans are written by the tests."""

    asked: list[Snapshot] = field(default_factory=list)

    def initial(self) -> int:
        return 0

    def plan(self, snap: Snapshot, memory: int) -> tuple[Plan, int]:
        raise AssertionError(snap, memory)


class Refilling(Scripted):
    """Gives the first idle device to the last job."""

    def refill(self, snap: Snapshot, memory: int, idle: np.ndarray) -> Placements:
        del memory
        return Placements.of([Placement(int(snap.job[-1]), 0, (int(idle[0]),))])


def scheduler(mechanism: Scripted | None = None, **kwargs: float) -> Scheduler[int]:
    made = Scheduler(
        Cluster.of({"v100": 2, "k80": 2}, per_node=1), SPEEDS, mechanism or Scripted(), **kwargs
    )
    for name in "abc":
        made.handle(ev.JobSubmitted(0.0, Job(id=name, workload="m", total_steps=100)))
    return made


def plan(*holds: int, until: float = 360.0, copy: list[int] | None = None) -> "Wish":
    return Wish(np.array(holds).reshape(-1, 4), until, copy)


@dataclass
class Wish:
    """Lanes × devices → job that should run there, NOBODY for -1."""

    holds: np.ndarray
    until: float
    copy: list[int] | None

    def placements(self) -> list[Placement]:
        copies = (
            np.zeros_like(self.holds)
            if self.copy is None
            else np.reshape(self.copy, self.holds.shape)
        )
        found: dict[tuple[int, int], list[int]] = {}
        for (lane, device), job in np.ndenumerate(self.holds):
            if job >= 0:
                found.setdefault((int(job), int(copies[lane, device])), []).append(device)
        return [Placement(job, copy, tuple(on)) for (job, copy), on in found.items()]


def ask(made: Scheduler[int], at: float) -> ComputePlan:
    (found,) = [c for c in made.handle(ev.PlanDue(at)) if isinstance(c, ComputePlan)]
    return found


def answer(made: Scheduler[int], to: ComputePlan, at: float, wish: "Wish") -> list[object]:
    stop, start = towards(to.snapshot, wish.placements())
    what = Plan(stop, start, wish.until, wish.until)
    return list(made.handle(ev.PlanReady(at, to.version, what, 0)))


def ready(made: Scheduler[int], at: float, wish: "Wish") -> list[object]:
    return answer(made, ask(made, at), at, wish)


def launched(commands: Sequence[object]) -> dict[int, tuple[int, ...]]:
    return {p.job: p.devices for c in commands if isinstance(c, Launch) for p in c.on}


def lease_of(made: Scheduler[int], job: int) -> int:
    (slot,) = made.leases.of_job(job)
    return int(made.leases.lease[slot])


def suspended(commands: Sequence[object]) -> set[int]:
    return {int(n) for c in commands if isinstance(c, Preempt) for n in c.lease}


def test_first_arrival_asks_for_a_plan_at_once() -> None:
    made = Scheduler(Cluster.of({"v100": 1}), SPEEDS, Scripted())
    commands = made.handle(ev.JobSubmitted(5.0, Job(id="a", workload="m", total_steps=1)))
    assert commands == [SetTimer("PlanDue", 5.0)]


def test_plan_launches_jobs_on_their_devices_until_the_rounds_end() -> None:
    made = scheduler()
    commands = ready(made, 0.0, plan(0, 0, 2, -1))
    assert launched(commands) == {0: (0, 1), 2: (2,)}
    assert SetTimer("RoundEnd", 360.0) in commands


def test_lease_on_the_same_devices_is_renewed_and_others_end() -> None:
    made = scheduler()
    ready(made, 0.0, plan(0, 1, 2, -1))
    kept, moved = lease_of(made, 0), lease_of(made, 1)
    commands = ready(made, 360.0, plan(0, -1, 2, 1, until=720.0))
    renewed = next(c for c in commands if isinstance(c, Renew))
    assert set(renewed.lease.tolist()) == {kept, lease_of(made, 2)}
    assert renewed.until == 720.0
    assert suspended(commands) == {moved}


def test_launch_waits_until_the_previous_lease_on_its_devices_has_ended() -> None:
    made = scheduler()
    ready(made, 0.0, plan(0, 1, -1, -1))
    first, second = lease_of(made, 0), lease_of(made, 1)
    commands = ready(made, 360.0, plan(1, 0, 2, -1))
    assert launched(commands) == {2: (2,)}
    left = ev.LeasesEnded(361.0, np.array([first]), np.array([10.0]), "left")
    assert launched(list(made.handle(left))) == {}, "device 0 is free, but job 1 still runs"
    left = ev.LeasesEnded(362.0, np.array([second]), np.array([10.0]), "left")
    assert launched(list(made.handle(left))) == {1: (0,), 0: (1,)}


def test_job_moves_to_a_free_device_only_when_its_own_lease_has_ended() -> None:
    made = scheduler()
    ready(made, 0.0, plan(0, -1, -1, -1))
    old = np.array([lease_of(made, 0)])
    assert launched(ready(made, 360.0, plan(-1, -1, 0, -1))) == {}
    left = ev.LeasesEnded(361.0, old, np.array([10.0]), "left")
    assert launched(list(made.handle(left))) == {0: (2,)}


def test_job_that_finishes_instead_of_moving_is_not_started_again() -> None:
    made = scheduler()
    ready(made, 0.0, plan(0, -1, -1, -1))
    old = np.array([lease_of(made, 0)])
    assert launched(ready(made, 360.0, plan(-1, -1, 0, -1))) == {}
    done = ev.LeasesEnded(361.0, old, np.array([100.0]), "finished")
    assert launched(list(made.handle(done))) == {}
    assert made.jobs.state[0] == JobState.FINISHED


def test_gang_that_changes_some_devices_ends_and_starts_whole() -> None:
    made = scheduler()
    ready(made, 0.0, plan(0, 0, -1, -1))
    old = lease_of(made, 0)
    commands = ready(made, 360.0, plan(0, -1, 0, -1))
    assert suspended(commands) == {old}
    assert launched(commands) == {}
    ended = ev.LeasesEnded(360.0, np.array([old]), np.array([5.0]), "left")
    assert launched(list(made.handle(ended))) == {0: (0, 2)}


def test_lease_numbers_only_grow() -> None:
    made = scheduler()
    ready(made, 0.0, plan(0, 1, -1, -1))
    before = {lease_of(made, 0), lease_of(made, 1)}
    for lease in sorted(before):
        made.handle(ev.LeasesEnded(10.0, np.array([lease]), np.array([1.0]), "failed"))
    ready(made, 10.0, plan(0, 1, -1, -1))
    assert min(lease_of(made, 0), lease_of(made, 1)) > max(before)


def test_report_of_a_lease_that_ended_is_refused_and_changes_nothing() -> None:
    made = scheduler()
    ready(made, 0.0, plan(0, -1, -1, -1))
    lease = np.array([lease_of(made, 0)])
    made.handle(ev.LeasesEnded(10.0, lease, np.array([7.0]), "failed"))
    steps = made.jobs.steps.copy()
    with pytest.raises(ProtocolError):
        made.handle(ev.Progress(11.0, lease, np.array([50.0])))
    np.testing.assert_array_equal(made.jobs.steps, steps)


def test_steps_never_go_back_below_the_checkpoint() -> None:
    made = scheduler()
    ready(made, 0.0, plan(0, -1, -1, -1))
    lease = np.array([lease_of(made, 0)])
    made.handle(ev.Progress(5.0, lease, np.array([40.0])))
    made.handle(ev.LeasesEnded(10.0, lease, np.array([30.0]), "lost"))
    assert made.jobs.steps[0] == made.jobs.saved_steps[0] == 30.0
    ready(made, 10.0, plan(0, -1, -1, -1))
    lease = np.array([lease_of(made, 0)])
    made.handle(ev.LeasesEnded(20.0, lease, np.array([20.0]), "lost"))
    assert made.jobs.saved_steps[0] == 30.0


def test_time_received_is_counted_in_seconds_per_accelerator() -> None:
    made = scheduler()
    ready(made, 0.0, plan(0, -1, 1, -1))
    lease = np.array([lease_of(made, 1)])
    made.handle(ev.LeasesEnded(100.0, lease, np.array([9.0]), "failed"))
    snap = made.snapshot(150.0, 360.0)
    np.testing.assert_allclose(snap.received_s[:2], [[360.0, 0.0], [0.0, 100.0]])


def test_plan_that_comes_before_the_rounds_end_waits_for_it_but_renews_at_once() -> None:
    made = scheduler(plan_lead_s=60.0)
    ready(made, 0.0, plan(0, 1, -1, -1))
    commands = ready(made, 300.0, plan(0, 2, -1, -1, until=720.0))
    assert [type(c) for c in commands] == [Renew]
    commands = list(made.handle(ev.RoundEnd(360.0)))
    assert suspended(commands) == {lease_of(made, 1)}


def test_late_plan_finds_everything_still_running() -> None:
    made = scheduler(plan_lead_s=60.0)
    ready(made, 0.0, plan(0, 1, -1, -1))
    request = ask(made, 300.0)
    commands = list(made.handle(ev.RoundEnd(360.0)))
    assert [type(c) for c in commands] == [Renew]
    assert len(suspended(answer(made, request, 400.0, plan(1, 0, -1, -1, until=760)))) == 2


def test_a_lease_that_left_untold_while_a_plan_was_made_is_not_told_to_leave() -> None:
    """As after an outage: its slot may be the next lease's, which must not leave for it."""
    made = scheduler()
    ready(made, 0.0, plan(0, 1, -1, -1))
    first = lease_of(made, 0)
    asked = ask(made, 360.0)
    made.handle(ev.LeasesEnded(361.0, np.array([first]), np.array([10.0]), "left"))
    commands = answer(made, asked, 362.0, plan(2, 1, -1, -1, until=720.0))
    assert suspended(commands) == set()
    assert launched(commands) == {2: (0,)}
    assert made.leases.leaving_count == 0
    assert not made.leases.leaving.any()


def test_a_plan_whose_own_round_is_over_moves_nobody() -> None:
    made = scheduler(plan_lead_s=10.0)
    ready(made, 0.0, plan(0, 1, -1, -1))
    ready(made, 350.0, plan(1, 0, -1, -1, until=720.0))
    commands = made.handle(ev.RoundEnd(800.0))  # the server was away
    assert commands == [SetTimer("PlanDue", 800.0)]
    assert suspended(ready(made, 800.0, plan(0, 1, -1, -1, until=1160.0))) == set()


def test_answer_to_an_older_request_is_ignored() -> None:
    made = scheduler()
    request = ask(made, 0.0)
    ask(made, 1.0)
    assert answer(made, request, 2.0, plan(0, -1, -1, -1)) == []


def test_lost_node_ends_its_leases_and_takes_its_devices_away() -> None:
    made = scheduler()
    ready(made, 0.0, plan(0, 0, 1, -1))
    commands = list(made.handle(ev.NodeLost(50.0, "v100-1")))
    assert suspended(commands) == {lease_of(made, 0)}
    snap = made.snapshot(50.0, 50.0)
    assert snap.capacity.tolist() == [1, 2]
    made.handle(ev.NodeReturned(60.0, "v100-1"))
    assert made.snapshot(60.0, 60.0).capacity.tolist() == [2, 2]


def test_job_that_leaves_a_drained_node_gets_idle_devices_at_once() -> None:
    made = scheduler(Refilling())
    ready(made, 0.0, plan(0, 1, 2, -1))
    left = lease_of(made, 2)
    made.handle(ev.NodeLost(50.0, "k80-0"))
    ended = ev.LeasesEnded(51.0, np.array([left]), np.array([50.0]), "left")
    assert launched(made.handle(ended)) == {2: (3,)}


def test_plan_made_before_a_node_was_lost_does_not_use_it() -> None:
    made = scheduler()
    request = ask(made, 0.0)
    made.handle(ev.NodeLost(1.0, "v100-0"))
    assert launched(answer(made, request, 2.0, plan(0, 0, 1, -1))) == {1: (2,)}


def test_devices_lent_since_the_plan_was_asked_for_are_taken_back() -> None:
    made = scheduler(Refilling(), plan_lead_s=60.0)
    ready(made, 0.0, plan(0, 1, -1, -1))
    request = ask(made, 300.0)
    lease = np.array([lease_of(made, 1)])
    made.handle(ev.LeasesEnded(310.0, lease, np.array([100.0]), "finished"))
    borrowed = lease_of(made, 2)
    answer(made, request, 320.0, plan(0, 2, 2, -1, until=720.0))
    commands = list(made.handle(ev.RoundEnd(360.0)))
    assert suspended(commands) == {borrowed}
    ended = ev.LeasesEnded(361.0, np.array([borrowed]), np.array([1.0]), "left")
    assert launched(list(made.handle(ended))) == {2: (1, 2)}


def test_devices_planned_for_a_job_that_has_ended_go_to_one_that_waits_once_they_are_free() -> (
    None
):
    made = scheduler(Refilling(), plan_lead_s=60.0)
    ready(made, 0.0, plan(2, 1, 0, -1))
    request = ask(made, 300.0)
    moves, leaves = np.array([lease_of(made, 1)]), np.array([lease_of(made, 2)])
    answer(made, request, 301.0, plan(1, -1, 0, -1, until=720.0))
    made.handle(ev.LeasesEnded(310.0, moves, np.array([100.0]), "finished"))
    commands = list(made.handle(ev.RoundEnd(360.0)))
    assert suspended(commands) == set(leaves.tolist())
    assert not launched(commands)
    left = made.handle(ev.LeasesEnded(361.0, leaves, np.array([50.0]), "left"))
    assert launched(list(left)) == {2: (0,)}


def test_a_decision_sees_what_waits_for_devices_that_others_still_leave() -> None:
    made = scheduler(plan_lead_s=60.0)
    ready(made, 0.0, plan(0, 1, -1, -1))
    request = ask(made, 300.0)
    answer(made, request, 301.0, plan(2, 2, 1, -1, until=720.0))
    made.handle(ev.RoundEnd(360.0))
    assert sorted(made.waiting.job.tolist()) == [1, 2]
    assert made.snapshot(361.0, 361.0).holds.tolist() == [[2, 2, 1, -1]]


def test_cancelled_job_leaves_and_is_not_planned_any_more() -> None:
    made = scheduler()
    ready(made, 0.0, plan(0, 1, -1, -1))
    lease = lease_of(made, 1)
    assert suspended(list(made.handle(ev.JobCancelled(9.0, "b")))) == {lease}
    assert made.snapshot(9.0, 9.0).job.tolist() == [0, 2]


def test_job_that_finishes_while_it_is_being_cancelled_stays_cancelled() -> None:
    made = scheduler()
    ready(made, 0.0, plan(0, 1, -1, -1))
    lease = np.array([lease_of(made, 1)])
    made.handle(ev.JobCancelled(9.0, "b"))
    made.handle(ev.LeasesEnded(9.5, lease, np.array([100.0]), "finished"))
    assert made.jobs.state[1] == JobState.CANCELLED
    assert made.snapshot(10.0, 10.0).holds.tolist() == [[0, -1, -1, -1]]


def test_freed_device_is_refilled_only_if_the_mechanism_does_so() -> None:
    for mechanism, expected in ((Scripted(), {}), (Refilling(), {2: (1,)})):
        made = scheduler(mechanism)
        ready(made, 0.0, plan(0, 1, 0, 0) if not expected else plan(0, 1, -1, -1))
        lease = np.array([lease_of(made, 1)])
        commands = made.handle(ev.LeasesEnded(10.0, lease, np.array([100.0]), "finished"))
        assert launched(list(commands)) == expected


def test_job_that_comes_while_the_first_plan_is_made_gets_what_that_leaves_idle() -> None:
    made = scheduler(Refilling())
    asked = ask(made, 0.0)
    made.handle(ev.JobSubmitted(0.0, Job(id="d", workload="m", total_steps=100)))
    commands = answer(made, asked, 0.1, plan(0, 1, 2, -1))
    assert launched(commands) == {0: (0,), 1: (1,), 2: (2,), 3: (3,)}
    assert not launched(made.handle(ev.NodeReturned(0.2, "v100-0")))


def test_round_ends_when_nothing_runs_any_more() -> None:
    made = scheduler()
    ready(made, 0.0, plan(0, -1, -1, -1))
    lease = np.array([lease_of(made, 0)])
    commands = made.handle(ev.LeasesEnded(10.0, lease, np.array([100.0]), "finished"))
    assert SetTimer("PlanDue", 10.0) in commands


def test_packed_jobs_share_devices_under_leases_of_their_own() -> None:
    made = scheduler()
    commands = ready(made, 0.0, plan(0, 0, -1, -1, 1, 1, 2, -1))
    assert launched(commands) == {0: (0, 1), 1: (0, 1), 2: (2,)}
    alone = lease_of(made, 0)
    commands = ready(made, 360.0, plan(0, 0, 2, 1, until=720.0))
    renewed = next(c for c in commands if isinstance(c, Renew))
    assert alone in renewed.lease.tolist()
    assert launched(commands) == {}, "device 3 is free, but job 1 has not left its devices yet"
    left = ev.LeasesEnded(360.0, np.array([lease_of(made, 1)]), np.array([5.0]), "left")
    assert launched(list(made.handle(left))) == {1: (3,)}


def test_copies_of_a_job_have_leases_of_their_own() -> None:
    made = scheduler()
    ready(made, 0.0, plan(0, 0, 0, 1, copy=[0, 1, 2, 0]))
    assert len(made.leases.of_job(0)) == 3
    commands = ready(made, 360.0, plan(0, 0, 1, -1, until=720.0, copy=[0, 1, 0, 0]))
    assert len(suspended(commands)) == 2


def test_job_that_can_never_run_is_refused_with_the_fix() -> None:
    made = scheduler()
    with pytest.raises(InputError, match="gang 3"):
        made.handle(ev.JobSubmitted(1.0, Job(id="d", workload="m", total_steps=1, gang=3)))
    with pytest.raises(InputError, match="exists"):
        made.handle(ev.JobSubmitted(1.0, Job(id="a", workload="m", total_steps=1)))
    assert len(made.jobs) == 3


@pytest.mark.parametrize(
    ("asks", "field", "problem"),
    [
        ({"accelerators": ("v101",)}, "accelerators", "only 'v101', which the cluster does not"),
        ({"memory_gib": 999.0}, "memory_gib", "needs 999 GiB of a device.* has 12"),
        ({"gang": 3}, "gang", "can run on none"),
    ],
)
def test_a_job_that_can_never_run_is_refused_for_what_keeps_it_from_it(
    asks: dict[str, Any], field: str, problem: str
) -> None:
    small = {kind: Accelerator(kind, memory_gib=12.0) for kind in ("v100", "k80")}
    made = Scheduler(Cluster.of({"v100": 2, "k80": 2}, details=small), SPEEDS, Scripted())
    with pytest.raises(InputError, match=problem) as refused:
        made.handle(ev.JobSubmitted(0.0, Job(id="new", workload="m", total_steps=1.0, **asks)))
    assert refused.value.field == field
    assert not made.jobs.ids


def test_what_a_decision_sees_of_tenants_does_not_change_under_it() -> None:
    core = scheduler()
    seen = core.snapshot(0.0, 0.0)
    before = list(seen.tenants)
    core.handle(ev.TenantChanged(1.0, Tenant("new")))
    assert list(seen.tenants) == before


def test_a_newcomer_gets_an_idle_device_though_a_cancelled_job_still_leaves_another() -> None:
    core = Scheduler(Cluster.of({"v100": 2}, per_node=1), SPEEDS, Refilling())
    core.handle(ev.JobSubmitted(0.0, Job(id="a", workload="m", total_steps=100)))
    core.round_end_at = 360.0
    core.leases.start(Placements.of([Placement(0, 0, (0,))]), 0.0)
    core.handle(ev.JobCancelled(1.0, "a"))
    commands = core.handle(ev.JobSubmitted(2.0, Job(id="b", workload="m", total_steps=100)))
    (launch,) = (one for one in commands if isinstance(one, Launch))
    assert (launch.on.job.tolist(), launch.on.device.tolist()) == ([1], [1])
