"""The scheduler turns events into commands."""

from typing import Any

import numpy as np
import pytest
from tests.unit.core.scripted_plans import (
    SPEEDS,
    Refilling,
    Scripted,
    answer,
    ask,
    launched,
    lease_of,
    plan,
    preempted,
    ready,
    scheduler,
)

from fairlead.core import Scheduler
from fairlead.core.event_log import decode_event, encode_event
from fairlead.core.jobs import JobState
from fairlead.model import events as ev
from fairlead.model.cluster import Accelerator, Cluster
from fairlead.model.commands import Launch, Renew, SetTimer
from fairlead.model.errors import InputError, ProtocolError
from fairlead.model.job import Job
from fairlead.model.lease import Placement, Placements
from fairlead.model.tenants.tenant import Tenant


def test_first_arrival_requests_a_plan_at_once() -> None:
    made = Scheduler(Cluster.of({"v100": 1}), SPEEDS, Scripted())
    commands = made.handle(ev.JobSubmitted(5.0, Job(id="a", workload="m", total_steps=1)))
    assert commands == [SetTimer("PlanDue", 5.0)]


def test_plan_launches_jobs_on_their_devices_until_the_round_ends() -> None:
    made = scheduler()
    commands = ready(made, 0.0, plan(0, 0, 2, -1))
    assert launched(commands) == {0: (0, 1), 2: (2,)}
    assert SetTimer("RoundEnd", 360.0) in commands


def test_lease_on_the_same_devices_is_renewed_and_others_are_preempted() -> None:
    made = scheduler()
    ready(made, 0.0, plan(0, 1, 2, -1))
    kept, moved = lease_of(made, 0), lease_of(made, 1)
    commands = ready(made, 360.0, plan(0, -1, 2, 1, until=720.0))
    renewed = next(c for c in commands if isinstance(c, Renew))
    assert set(renewed.lease.tolist()) == {kept, lease_of(made, 2)}
    assert renewed.until == 720.0
    assert preempted(commands) == {moved}


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


def test_gang_that_changes_some_devices_is_preempted_and_restarted_as_a_whole() -> None:
    made = scheduler()
    ready(made, 0.0, plan(0, 0, -1, -1))
    old = lease_of(made, 0)
    commands = ready(made, 360.0, plan(0, -1, 0, -1))
    assert preempted(commands) == {old}
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


def test_report_of_an_ended_lease_is_rejected_and_changes_nothing() -> None:
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


def test_steps_of_a_parked_process_count_as_made_and_as_saved_once_they_are() -> None:
    made = scheduler()
    ready(made, 0.0, plan(0, 1, -1, -1))
    leases = [np.array([lease_of(made, job)]) for job in (0, 1)]
    for lease in leases:
        made.handle(ev.Progress(5.0, lease, np.array([40.0])))
        left = ev.LeasesEnded(6.0, lease, np.array([10.0]), "left", np.array([42.0]))
        again = decode_event(encode_event(left), type(made.memory))
        assert isinstance(again, ev.LeasesEnded)
        assert again.unsaved is not None
        made.handle(again)
    assert made.jobs.steps[:2].tolist() == [42.0, 42.0]
    assert made.jobs.saved_steps[:2].tolist() == [10.0, 10.0]
    ready(made, 7.0, plan(0, 1, -1, -1))
    made.handle(ev.Progress(8.0, np.array([lease_of(made, 0)]), np.array([45.0])))
    made.handle(ev.StepsSaved(9.0, "a", 42.0))  # its next lease has reported later steps
    made.handle(ev.StepsSaved(9.0, "b", 10.0, lost=True))  # its process died before
    assert made.jobs.steps[:2].tolist() == [45.0, 10.0]
    assert made.jobs.saved_steps[:2].tolist() == [42.0, 10.0]


def test_time_received_is_counted_in_seconds_per_accelerator() -> None:
    made = scheduler()
    ready(made, 0.0, plan(0, -1, 1, -1))
    lease = np.array([lease_of(made, 1)])
    made.handle(ev.LeasesEnded(100.0, lease, np.array([9.0]), "failed"))
    snap = made.snapshot(150.0, 360.0)
    np.testing.assert_allclose(snap.received_s[:2], [[360.0, 0.0], [0.0, 100.0]])


def test_early_plan_applies_at_the_end_of_the_round_but_renews_leases_at_once() -> None:
    made = scheduler(plan_lead_s=60.0)
    ready(made, 0.0, plan(0, 1, -1, -1))
    commands = ready(made, 300.0, plan(0, 2, -1, -1, until=720.0))
    assert [type(c) for c in commands] == [Renew]
    commands = list(made.handle(ev.RoundEnd(360.0)))
    assert preempted(commands) == {lease_of(made, 1)}


def test_leases_continue_until_a_late_plan_arrives() -> None:
    made = scheduler(plan_lead_s=60.0)
    ready(made, 0.0, plan(0, 1, -1, -1))
    request = ask(made, 300.0)
    commands = list(made.handle(ev.RoundEnd(360.0)))
    assert [type(c) for c in commands] == [Renew]
    assert len(preempted(answer(made, request, 400.0, plan(1, 0, -1, -1, until=760)))) == 2


def test_plan_does_not_preempt_a_lease_that_ended_while_it_was_computed() -> None:
    """As after an outage: the lease's slot may hold the next lease, which must stay."""
    made = scheduler()
    ready(made, 0.0, plan(0, 1, -1, -1))
    first = lease_of(made, 0)
    request = ask(made, 360.0)
    made.handle(ev.LeasesEnded(361.0, np.array([first]), np.array([10.0]), "left"))
    commands = answer(made, request, 362.0, plan(2, 1, -1, -1, until=720.0))
    assert preempted(commands) == set()
    assert launched(commands) == {2: (0,)}
    assert made.leases.leaving_count == 0
    assert not made.leases.leaving.any()


def test_plan_whose_round_has_ended_moves_no_job() -> None:
    made = scheduler(plan_lead_s=10.0)
    ready(made, 0.0, plan(0, 1, -1, -1))
    ready(made, 350.0, plan(1, 0, -1, -1, until=720.0))
    commands = made.handle(ev.RoundEnd(800.0))  # the server was down
    assert commands == [SetTimer("PlanDue", 800.0)]
    assert preempted(ready(made, 800.0, plan(0, 1, -1, -1, until=1160.0))) == set()


def test_plan_for_an_older_request_is_ignored() -> None:
    made = scheduler()
    request = ask(made, 0.0)
    ask(made, 1.0)
    assert answer(made, request, 2.0, plan(0, -1, -1, -1)) == []


def test_lost_node_preempts_its_leases_and_removes_its_devices() -> None:
    made = scheduler()
    ready(made, 0.0, plan(0, 0, 1, -1))
    commands = list(made.handle(ev.NodeLost(50.0, "v100-1")))
    assert preempted(commands) == {lease_of(made, 0)}
    snap = made.snapshot(50.0, 50.0)
    assert snap.capacity.tolist() == [1, 2]
    made.handle(ev.NodeReturned(60.0, "v100-1"))
    assert made.snapshot(60.0, 60.0).capacity.tolist() == [2, 2]


def test_job_from_a_drained_node_gets_idle_devices_at_once() -> None:
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


def test_plan_preempts_leases_that_started_on_its_devices_since_the_request() -> None:
    made = scheduler(Refilling(), plan_lead_s=60.0)
    ready(made, 0.0, plan(0, 1, -1, -1))
    request = ask(made, 300.0)
    lease = np.array([lease_of(made, 1)])
    made.handle(ev.LeasesEnded(310.0, lease, np.array([100.0]), "finished"))
    borrowed = lease_of(made, 2)
    answer(made, request, 320.0, plan(0, 2, 2, -1, until=720.0))
    commands = list(made.handle(ev.RoundEnd(360.0)))
    assert preempted(commands) == {borrowed}
    ended = ev.LeasesEnded(361.0, np.array([borrowed]), np.array([1.0]), "left")
    assert launched(list(made.handle(ended))) == {2: (1, 2)}


def test_devices_planned_for_an_ended_job_go_to_a_queued_job_once_free() -> None:
    made = scheduler(Refilling(), plan_lead_s=60.0)
    ready(made, 0.0, plan(2, 1, 0, -1))
    request = ask(made, 300.0)
    moves, leaves = np.array([lease_of(made, 1)]), np.array([lease_of(made, 2)])
    answer(made, request, 301.0, plan(1, -1, 0, -1, until=720.0))
    made.handle(ev.LeasesEnded(310.0, moves, np.array([100.0]), "finished"))
    commands = list(made.handle(ev.RoundEnd(360.0)))
    assert preempted(commands) == set(leaves.tolist())
    assert not launched(commands)
    left = made.handle(ev.LeasesEnded(361.0, leaves, np.array([50.0]), "left"))
    assert launched(list(left)) == {2: (0,)}


def test_snapshot_shows_placements_that_wait_for_preempted_leases() -> None:
    made = scheduler(plan_lead_s=60.0)
    ready(made, 0.0, plan(0, 1, -1, -1))
    request = ask(made, 300.0)
    answer(made, request, 301.0, plan(2, 2, 1, -1, until=720.0))
    made.handle(ev.RoundEnd(360.0))
    assert sorted(made.waiting.job.tolist()) == [1, 2]
    assert made.snapshot(361.0, 361.0).holds.tolist() == [[2, 2, 1, -1]]


def test_cancelled_job_is_preempted_and_no_longer_planned() -> None:
    made = scheduler()
    ready(made, 0.0, plan(0, 1, -1, -1))
    lease = lease_of(made, 1)
    assert preempted(list(made.handle(ev.JobCancelled(9.0, "b")))) == {lease}
    assert made.snapshot(9.0, 9.0).job.tolist() == [0, 2]


def test_job_that_finishes_while_it_is_being_cancelled_stays_cancelled() -> None:
    made = scheduler()
    ready(made, 0.0, plan(0, 1, -1, -1))
    lease = np.array([lease_of(made, 1)])
    made.handle(ev.JobCancelled(9.0, "b"))
    made.handle(ev.LeasesEnded(9.5, lease, np.array([100.0]), "finished"))
    assert made.jobs.state[1] == JobState.CANCELLED
    assert made.snapshot(10.0, 10.0).holds.tolist() == [[0, -1, -1, -1]]


def test_freed_device_is_refilled_only_if_the_mechanism_supports_it() -> None:
    for mechanism, expected in ((Scripted(), {}), (Refilling(), {2: (1,)})):
        made = scheduler(mechanism)
        ready(made, 0.0, plan(0, 1, 0, 0) if not expected else plan(0, 1, -1, -1))
        lease = np.array([lease_of(made, 1)])
        commands = made.handle(ev.LeasesEnded(10.0, lease, np.array([100.0]), "finished"))
        assert launched(list(commands)) == expected


def test_job_submitted_during_the_first_plan_gets_idle_devices() -> None:
    made = scheduler(Refilling())
    request = ask(made, 0.0)
    made.handle(ev.JobSubmitted(0.0, Job(id="d", workload="m", total_steps=100)))
    commands = answer(made, request, 0.1, plan(0, 1, 2, -1))
    assert launched(commands) == {0: (0,), 1: (1,), 2: (2,), 3: (3,)}
    assert not launched(made.handle(ev.NodeReturned(0.2, "v100-0")))


def test_round_ends_with_its_last_lease() -> None:
    made = scheduler()
    ready(made, 0.0, plan(0, -1, -1, -1))
    lease = np.array([lease_of(made, 0)])
    commands = made.handle(ev.LeasesEnded(10.0, lease, np.array([100.0]), "finished"))
    assert SetTimer("PlanDue", 10.0) in commands


def test_packed_jobs_share_devices_under_separate_leases() -> None:
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


def test_copies_of_a_job_have_separate_leases() -> None:
    made = scheduler()
    ready(made, 0.0, plan(0, 0, 0, 1, copy=[0, 1, 2, 0]))
    assert len(made.leases.of_job(0)) == 3
    commands = ready(made, 360.0, plan(0, 0, 1, -1, until=720.0, copy=[0, 1, 0, 0]))
    assert len(preempted(commands)) == 2


def test_job_that_can_never_run_is_rejected_with_a_fix() -> None:
    made = scheduler()
    with pytest.raises(InputError, match="needs 3 devices"):
        made.handle(ev.JobSubmitted(1.0, Job(id="d", workload="m", total_steps=1, gang=3)))
    with pytest.raises(InputError, match="exists"):
        made.handle(ev.JobSubmitted(1.0, Job(id="a", workload="m", total_steps=1)))
    assert len(made.jobs) == 3


@pytest.mark.parametrize(
    ("wants", "field", "problem"),
    [
        ({"accelerators": ("v101",)}, "accelerators", "no accelerator of the cluster: v101"),
        ({"memory_gib": 999.0}, "memory_gib", "needs 999 GiB of a device.* has 12"),
        ({"gang": 3}, "gang", "needs 3 devices of one accelerator"),
    ],
)
def test_rejection_names_the_field_that_keeps_a_job_from_running(
    wants: dict[str, Any], field: str, problem: str
) -> None:
    small = {name: Accelerator(name, memory_gib=12.0) for name in ("v100", "k80")}
    made = Scheduler(Cluster.of({"v100": 2, "k80": 2}, details=small), SPEEDS, Scripted())
    with pytest.raises(InputError, match=problem) as rejected:
        made.handle(ev.JobSubmitted(0.0, Job(id="new", workload="m", total_steps=1.0, **wants)))
    assert rejected.value.field == field
    assert not made.jobs.ids


def test_tenants_of_a_snapshot_never_change() -> None:
    core = scheduler()
    snap = core.snapshot(0.0, 0.0)
    before = list(snap.tenants)
    core.handle(ev.TenantChanged(1.0, Tenant("new")))
    assert list(snap.tenants) == before


def test_new_job_gets_an_idle_device_while_a_cancelled_job_leaves_another() -> None:
    core = Scheduler(Cluster.of({"v100": 2}, per_node=1), SPEEDS, Refilling())
    core.handle(ev.JobSubmitted(0.0, Job(id="a", workload="m", total_steps=100)))
    core.round_end_at = 360.0
    core.leases.start(Placements.of([Placement(0, 0, (0,))]), 0.0)
    core.handle(ev.JobCancelled(1.0, "a"))
    commands = core.handle(ev.JobSubmitted(2.0, Job(id="b", workload="m", total_steps=100)))
    (launch,) = (command for command in commands if isinstance(command, Launch))
    assert (launch.on.job.tolist(), launch.on.device.tolist()) == ([1], [1])
