"""What a live server counts for each job."""

import json

import numpy as np
import pytest

from fairlead.core import Scheduler
from fairlead.live.accounting import Ledger
from fairlead.mechanisms.srtf import Srtf
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster
from fairlead.model.commands import ComputePlan, Launch
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable


class Site:
    """One device, one job that holds it under its first lease."""

    def __init__(self) -> None:
        cluster = Cluster.of({"v100": 1}, per_node=1)
        speeds = SpeedTable({SpeedKey("m", 1, "v100"): 1.0})
        self.scheduler: Scheduler[None] = Scheduler(cluster, speeds, Srtf())
        self.ledger = Ledger()
        self.lease = -1
        self.send(ev.JobSubmitted(0.0, Job(id="a", workload="m", total_steps=100)))
        self.send(ev.PlanDue(0.0))

    def send(self, event: ev.Event) -> None:
        commands = self.scheduler.handle(event)
        self.ledger.note(event, self.scheduler.jobs)
        for command in commands:
            if isinstance(command, ComputePlan):
                plan, memory = self.scheduler.mechanism.plan(command.snapshot, None)
                self.send(ev.PlanReady(event.at, command.version, plan, memory))
            elif isinstance(command, Launch):
                self.lease = int(command.lease[0])
                self.ledger.count_launch(command, event.at, self.scheduler.jobs, ("v100",))

    def end(self, outcome: ev.Outcome) -> None:
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
def test_a_job_was_preempted_if_it_has_to_wait_for_another_lease(
    before: ev.Event | None, outcome: ev.Outcome, preemptions: int, failures: int
) -> None:
    site = Site()
    if before is not None:
        site.send(before)
    site.end(outcome)
    found = site.ledger.of("a")
    assert (found.leases, found.preemptions, found.failures) == (1, preemptions, failures)
    again = Ledger()
    again.restore(json.loads(json.dumps(site.ledger.saved())))
    assert again.tally == site.ledger.tally


def test_looking_at_a_job_enters_nothing() -> None:
    ledger = Ledger()
    assert ledger.of("a").leases == 0
    assert ledger.tally == {}  # it may be on its way into the store in another thread
