"""Counters that a live scheduler keeps per job."""

import json

import numpy as np
import pytest

from fairlead.core import Scheduler
from fairlead.core.queries import Queries
from fairlead.live.accounting import JobCounters
from fairlead.mechanisms.srtf import Srtf
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster
from fairlead.model.commands import ComputePlan, Launch
from fairlead.model.job import Job
from fairlead.model.lease_outcome import LoggedOutcome
from fairlead.model.speeds.table import SpeedKey, SpeedTable


class Site:
    """One device and one job that holds it under its first lease."""

    def __init__(self) -> None:
        cluster = Cluster.of({"v100": 1}, per_node=1)
        speeds = SpeedTable({SpeedKey("m", 1, "v100"): 1.0})
        self.scheduler: Scheduler[None] = Scheduler(cluster, speeds, Srtf())
        self.queries = Queries(self.scheduler)
        self.counters = JobCounters(self.queries)
        self.lease = -1
        self.send(ev.JobSubmitted(0.0, Job(id="a", workload="m", total_steps=100)))
        self.send(ev.PlanDue(0.0))

    def send(self, event: ev.Event) -> None:
        commands = self.scheduler.handle(event)
        self.counters.record(event)
        for command in commands:
            if isinstance(command, ComputePlan):
                plan, memory = self.scheduler.mechanism.plan(command.snapshot, None)
                self.send(ev.PlanReady(event.at, command.version, plan, memory))
            elif isinstance(command, Launch):
                self.lease = int(command.lease[0])
                self.counters.record_launch(command, event.at)

    def end(self, outcome: LoggedOutcome) -> None:
        self.send(ev.LeasesEnded(9.0, np.array([self.lease]), np.array([5.0]), outcome))


@pytest.mark.parametrize(
    ("before", "outcome", "preemptions", "failures"),
    [
        (None, "left", 1, 0),
        (None, "lost", 1, 0),
        (None, "failed", 0, 1),
        (None, "finished", 0, 0),
        (ev.JobCancelled(8.0, "a"), "left", 0, 0),
        (ev.JobHeld(8.0, "a"), "left", 0, 0),
    ],
)
def test_preemption_counts_only_if_the_job_needs_another_lease(
    before: ev.Event | None, outcome: LoggedOutcome, preemptions: int, failures: int
) -> None:
    site = Site()
    if before is not None:
        site.send(before)
    site.end(outcome)
    counts = site.counters.of("a")
    assert (counts.leases, counts.preemptions, counts.failures) == (1, preemptions, failures)
    again = JobCounters(site.queries)
    again.restore(json.loads(json.dumps(site.counters.saved())))
    assert again.tally == site.counters.tally
    # The history of the job may not be stored yet.
    assert [*again.ended_leases] == [*site.counters.ended_leases] != []
    assert [*again.ended_intervals] == [*site.counters.ended_intervals] != []
    assert again.saved() == site.counters.saved()


def test_saved_counts_hold_records_of_the_last_minute() -> None:
    site = Site()
    for end_at in (9.0, 40.0, 75.0):
        site.send(ev.LeasesEnded(end_at, np.array([site.lease]), np.array([5.0]), "left"))
        site.send(ev.PlanDue(end_at))
    again = JobCounters(site.queries)
    again.restore(json.loads(json.dumps(site.counters.saved())))
    assert [record.ended_at for _, record in again.ended_leases] == [40.0, 75.0]
    assert [*again.ended_intervals] == [*site.counters.ended_intervals][-1:]
    again.forget("a")
    assert again.saved()["ended"] == {}


@pytest.mark.parametrize(("saved", "lost_s"), [(9.0, 0.0), (6.0, 3.0), (0.0, 9.0)])
def test_work_is_lost_once_a_parked_process_has_not_saved_it(saved: float, lost_s: float) -> None:
    site = Site()
    site.send(ev.Progress(8.0, np.array([site.lease]), np.array([9.0])))
    ended = np.array([site.lease]), np.array([0.0])
    site.send(ev.LeasesEnded(9.0, *ended, "left", np.array([9.0])))
    assert site.counters.of("a").lost_s == 0.0
    assert not site.counters.ended_leases
    again = JobCounters(site.queries)
    again.restore(json.loads(json.dumps(site.counters.saved())))
    site.counters = again  # a server that starts now
    site.send(ev.PlanDue(9.5))
    site.send(ev.StepsSaved(10.0, "a", saved))
    assert site.counters.of("a").lost_s == site.counters.tenants.of("default").lost_s == lost_s
    ((_, record),) = site.counters.ended_leases
    assert (record.steps, record.lost_s, record.ended_at) == (saved, lost_s, 9.0)
    site.send(ev.LeasesEnded(12.0, np.array([site.lease]), np.array([11.0]), "left"))
    _, later = site.counters.ended_leases[-1]
    assert later.steps == 11.0 - saved  # no step counts twice


def test_work_in_the_memory_of_a_suspended_process_is_lost_with_it() -> None:
    site = Site()
    for end_at in (9.0, 20.0):  # one process under both leases
        ended = np.array([site.lease]), np.array([0.0])
        site.send(ev.LeasesEnded(end_at, *ended, "left", suspended=True))
        site.send(ev.PlanDue(end_at + 1.0))
    assert site.counters.of("a").lost_s == 0.0
    again = JobCounters(site.queries)
    again.restore(json.loads(json.dumps(site.counters.saved())))
    assert json.dumps(again.saved()) == json.dumps(site.counters.saved())
    outcomes: dict[LoggedOutcome, float] = {"left": 0.0, "failed": 19.0, "lost": 19.0}
    for outcome, lost_s in outcomes.items():  # it continues, and ends under its third lease
        again = JobCounters(site.queries)
        again.restore(json.loads(json.dumps(site.counters.saved())))
        ended = np.array([site.lease]), np.array([0.0])
        again.record(ev.LeasesEnded(21.0, *ended, outcome))
        _, third = again.ended_leases[-1]
        assert again.of("a").lost_s - third.lost_s == lost_s
        assert again.suspended.lease_of("a") is None
    for _ in range(2):  # the second report finds nothing
        site.send(ev.StepsSaved(22.0, "a", 0.0))  # it ends while it is suspended
        assert site.counters.of("a").lost_s == site.counters.tenants.of("default").lost_s == 19.0


def test_reading_counts_adds_no_entry() -> None:
    counters = JobCounters(Site().queries)
    assert counters.of("a").leases == 0
    assert counters.tally == {}  # another thread may be saving it


def test_finished_lease_counts_in_usage_queue_wait_and_ended_jobs() -> None:
    site = Site()
    site.end("finished")
    counters = site.counters
    assert counters.of("a").device_s == 9.0
    assert counters.usage.totals == {("default", "v100"): 9.0}
    assert counters.totals.ended == {"finished": 1}
    assert (sum(counters.totals.waits), counters.totals.waits_s) == (1, 0.0)
    ((job_id, record),) = counters.ended_leases
    assert (job_id, record.ending, record.steps, record.accelerators) == (
        *("a", "finished", 5.0),
        {"v100": 1},
    )


def test_open_lease_counts_until_now() -> None:
    site = Site()
    assert site.counters.usage_until(4.0).totals == {("default", "v100"): 4.0}
    assert site.counters.device_s_until("a", site.lease, 4.0) == 4.0
    assert site.counters.usage.totals == {}


def test_state_of_an_earlier_version_loads_with_the_devices_of_open_leases() -> None:
    site = Site()
    saved = json.loads(json.dumps(site.counters.saved()))
    for name in ("places", "usage", "totals"):
        del saved[name]
    for counts in saved["tally"].values():
        del counts["device_s"]
    again = JobCounters(site.queries)
    again.restore(saved)
    assert again.usage_until(4.0).totals == {("default", "v100"): 4.0}
    assert again.totals.ended == {}
