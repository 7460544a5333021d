"""Queries answer by ids, names and numbers, never by slots or columns."""

import numpy as np
import pytest

from fairlead.core import Scheduler, encode_event
from fairlead.core.device_use import tenant_holdings
from fairlead.core.event_log import decode_event
from fairlead.core.queries import JobState, Queries
from fairlead.mechanisms.srtf import Srtf
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster
from fairlead.model.commands import Command, Preempt
from fairlead.model.errors import ProtocolError
from fairlead.model.job import Job
from fairlead.model.lease import Placement, Placements
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.model.tenants.tenant import Tenant

SPEEDS = SpeedTable(
    {SpeedKey("m", gang, name): 1.0 for gang in (1, 2) for name in ("v100", "k80")}
)


@pytest.fixture
def scheduler() -> Scheduler[None]:
    """Job a runs on both v100, b and c share a k80, d is queued and e held."""
    scheduler: Scheduler[None] = Scheduler(
        Cluster.of({"v100": 2, "k80": 2}, per_node=1), SPEEDS, Srtf()
    )
    for name in "abcde":
        job = Job(
            id=name,
            workload="m",
            total_steps=100,
            gang=2 if name == "a" else 1,
            tenant="x" if name in "ab" else "y",
        )
        scheduler.handle(ev.JobSubmitted(0.0, job))
    scheduler.handle(ev.JobHeld(0.0, "e"))
    placements = [Placement(0, 0, (0, 1)), Placement(1, 0, (2,)), Placement(2, 0, (2,))]
    scheduler.leases.start(Placements.of(placements), 0.0)
    return scheduler


def test_status_of_a_running_and_of_a_queued_job(scheduler: Scheduler[None]) -> None:
    queries = Queries(scheduler)
    running, queued = queries.job_status(0), queries.job_status(3)
    assert (running.id, running.state, running.accelerator) == ("a", JobState.ACTIVE, "v100")
    assert running.devices == 2
    assert running.lease in {lease.number for lease in queries.open_leases()}
    assert (queued.lease, queued.accelerator, queued.devices) == (None, None, 0)


def test_jobs_are_selected_by_state_tenant_and_devices(scheduler: Scheduler[None]) -> None:
    queries, x_only = Queries(scheduler), np.array([True, False])
    unended = (JobState.ACTIVE, JobState.HELD)
    assert queries.select_jobs(unended).tolist() == queries.unended_jobs() == [0, 1, 2, 3, 4]
    assert queries.select_jobs(unended, running=True).tolist() == [0, 1, 2]
    assert queries.select_jobs(unended, running=False, after=4).tolist() == [4]
    assert queries.select_jobs(unended, tenants=x_only).tolist() == [0, 1]
    assert queries.select_jobs((JobState.FINISHED,), after=99).tolist() == []
    assert queries.held_jobs() == ["e"]


def test_shared_devices_name_the_partners(scheduler: Scheduler[None]) -> None:
    queries = Queries(scheduler)
    number = {lease.job_id: lease.number for lease in queries.open_leases()}
    shared = queries.shared_devices(number["b"])
    assert shared is not None
    assert (shared.job_id, shared.accelerators, shared.partners) == ("b", ["k80"], ["c"])
    assert queries.shared_devices(number["b"] + (1 << 40)) is None


def test_nodes_show_busy_and_taken_devices_but_not_removed_nodes(
    scheduler: Scheduler[None],
) -> None:
    queries = Queries(scheduler)
    scheduler.handle(ev.DevicesTaken(1.0, "k80-1", (0,)))
    scheduler.handle(ev.NodeCordoned(1.0, "k80-0"))
    scheduler.handle(ev.NodeRemoved(1.0, "v100-1"))
    shown = {s.node.id: (s.up, s.cordoned, s.busy, s.taken) for s in queries.node_statuses()}
    assert shown == {
        "v100-0": (True, False, 1, 0),
        "k80-0": (True, True, 1, 0),
        "k80-1": (True, False, 0, 1),
    }
    assert queries.device_counts() == {"v100": (1, 2), "k80": (2, 1)}
    assert queries.has_leases_on("k80-0")
    assert not queries.has_leases_on("k80-1")


def test_leases_on_missing_devices_are_preempted_and_on_taken_ones_continue(
    scheduler: Scheduler[None],
) -> None:
    def preempted(event: ev.DevicesTaken) -> list[Command]:
        return [c for c in scheduler.handle(event) if isinstance(c, Preempt)]

    assert preempted(ev.DevicesTaken(1.0, "v100-0", (0,))) == []
    gone = ev.DevicesTaken(2.0, "v100-0", (0,), gone=True)
    assert decode_event(encode_event(gone), type(None)) == gone
    assert len(preempted(gone)) == 1
    assert '"gone"' not in encode_event(ev.DevicesTaken(1.0, "v100-0", (0,)))


def test_restored_node_counts_again_and_returns(scheduler: Scheduler[None]) -> None:
    queries = Queries(scheduler)
    scheduler.handle(ev.NodeRemoved(1.0, "v100-1"))
    with pytest.raises(ProtocolError, match="restore"):
        scheduler.handle(ev.NodeReturned(1.0, "v100-1"))
    scheduler.handle(ev.NodeRestored(2.0, "v100-1"))
    shown = {status.node.id: status.up for status in queries.node_statuses()}
    assert not shown["v100-1"]
    assert queries.device_counts()["v100"][0] == 2
    scheduler.handle(ev.NodeReturned(3.0, "v100-1"))
    assert {status.node.id: status.up for status in queries.node_statuses()}["v100-1"]
    with pytest.raises(ProtocolError, match="not removed"):
        scheduler.handle(ev.NodeRestored(4.0, "v100-1"))


def test_tenants_show_their_devices_and_usage(scheduler: Scheduler[None]) -> None:
    x, y = Queries(scheduler).tenant_statuses(10.0)
    assert (x.tenant.id, x.jobs, x.devices, x.device_s) == ("x", 2, 3, 30.0)
    assert (y.tenant.id, y.jobs, y.devices, y.device_s) == ("y", 2, 1, 10.0)
    assert (x.entitled, y.entitled) == (0.5, 0.5)
    assert tenant_holdings(scheduler) == [(2, {"v100": 2, "k80": 1}, 3.0), (1, {"k80": 1}, 1.0)]


def test_entitlements_are_those_of_tenants_with_jobs() -> None:
    scheduler: Scheduler[None] = Scheduler(Cluster.of({"k80": 8}, per_node=8), SPEEDS, Srtf())
    tree = {"vision": (None, 1.0), "team": (None, 1.0), "ta": ("team", 1.0), "tb": ("team", 3.0)}
    for name, (parent, weight) in tree.items():
        scheduler.handle(ev.TenantChanged(0.0, Tenant(name, weight=weight, parent=parent)))

    def entitled() -> dict[str, float]:
        return {one.tenant.id: one.entitled for one in Queries(scheduler).tenant_statuses(1.0)}

    for name in ("vision", "ta"):
        job = Job(id=name, workload="m", total_steps=1.0, tenant=name)
        scheduler.handle(ev.JobSubmitted(0.0, job))
    assert entitled() == {"vision": 0.5, "team": 0.0, "ta": 0.5, "tb": 0.0}
    scheduler.handle(
        ev.JobSubmitted(0.0, Job(id="t", workload="m", total_steps=1.0, tenant="team"))
    )
    assert entitled() == {"vision": 0.5, "team": 0.25, "ta": 0.25, "tb": 0.0}
