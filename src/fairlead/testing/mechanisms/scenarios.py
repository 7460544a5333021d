"""Scenarios of the mechanism conformance suite."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from fairlead.model.cluster import Cluster, Node
from fairlead.model.events import (
    DevicesTaken,
    Event,
    JobCancelled,
    NodeAdded,
    NodeCordoned,
    NodeEvent,
    NodeLost,
    NodeRemoved,
    NodeReturned,
    TenantChanged,
)
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.model.tenants.tenant import Tenant
from fairlead.sim.scenario import Scenario

ACCELERATORS = ("v100", "p100", "k80")
_SPEED = {"big": (8.0, 4.0, 1.0), "small": (2.0, 2.2, 1.5), "cnn": (5.0, 3.0, 0.0)}
SPEEDS = SpeedTable(
    {
        SpeedKey(name, gang, accelerator): speed * gang**0.8
        for name, row in _SPEED.items()
        for gang in (1, 2, 4)
        for accelerator, speed in zip(ACCELERATORS, row, strict=True)
    }
)
"""steps per second; ``cnn`` cannot run on a K80, ``small`` is slower on a V100 than on a P100"""
_WORKLOADS = ("big", "small", "cnn", "small", "big")


def mixed_gangs(mechanism: Any) -> Scenario:
    """Return jobs of one to four devices that arrive faster than they finish."""
    return _scenario(mechanism, _jobs(18, every_s=200.0))


def alternatives(mechanism: Any) -> Scenario:
    """Return a mix with jobs that need more devices of slower accelerators, while nodes fail."""
    fixed = _jobs(8, every_s=200.0)
    flexible = [
        replace(
            job,
            id=f"either{i}",
            gang=1,
            workload=("small", "big")[i % 2],
            accelerators=("v100", "p100", "k80") if i % 3 else ("v100", "k80"),
            gangs={"p100": 2, "k80": 4} if i % 3 else {"k80": 2},
        )
        for i, job in enumerate(_jobs(8, every_s=200.0, first_at=50.0))
    ]
    jobs = sorted([*fixed, *flexible], key=lambda job: job.arrival_at)
    events: list[Event] = [
        NodeLost(1000.0, "v100-0"),
        NodeLost(1400.0, "k80-1"),
        NodeReturned(2600.0, "v100-0"),
        NodeReturned(3000.0, "k80-1"),
    ]
    return _scenario(mechanism, jobs, events)


def nodes_come_and_go(mechanism: Any) -> Scenario:
    """Return a cluster whose nodes start lost, fail, and in part return."""
    events: list[Event] = [
        NodeLost(0.0, "p100-1"),
        NodeLost(1000.0, "v100-0"),
        NodeReturned(2100.0, "p100-1"),
        NodeLost(2500.0, "k80-0"),
        NodeReturned(4000.0, "v100-0"),
        NodeLost(4000.0, "p100-0"),
    ]
    return _scenario(mechanism, _jobs(14, every_s=250.0), events)


def all_nodes_lost(mechanism: Any) -> Scenario:
    """Return a cluster without nodes when the first jobs arrive, and again later."""
    scenario = _scenario(mechanism, _jobs(14, every_s=250.0))
    nodes = [node.id for node in scenario.cluster.nodes]
    events: list[NodeEvent] = []
    for lost_at, returned_at in ((0.0, 700.0), (1900.0, 2300.0)):
        events += [NodeLost(lost_at, node) for node in nodes]
        events += [NodeReturned(returned_at, node) for node in nodes]
    return replace(scenario, node_events=events)


def nodes_join(mechanism: Any) -> Scenario:
    """Return a small cluster that nodes join, one of them with a new accelerator.

    Later a node is removed.
    """
    events: list[Event] = [
        NodeAdded(700.0, Node("p100-1", ("p100", "p100"))),
        NodeAdded(1300.0, Node("k80-0", ("k80", "k80"))),
        NodeCordoned(1700.0, "k80-0"),
        NodeLost(2000.0, "p100-1"),
        NodeCordoned(2300.0, "k80-0", cordoned=False),
        NodeReturned(2600.0, "p100-1"),
        NodeAdded(2800.0, Node("both-0", ("k80", "v100", "k80"))),
        NodeRemoved(3600.0, "v100-0"),
    ]
    before = Cluster.of({"v100": 4, "p100": 2}, per_node=2)
    return replace(_scenario(mechanism, _jobs(14, every_s=250.0), events), cluster=before)


def devices_taken(mechanism: Any) -> Scenario:
    """Return a shared cluster: devices are taken, idle or busy, and released."""
    events: list[Event] = [
        DevicesTaken(0.0, "v100-1", (0,)),
        DevicesTaken(600.0, "p100-0", (0, 1)),
        DevicesTaken(1100.0, "v100-0", (1,)),
        DevicesTaken(1500.0, "v100-1", ()),
        NodeLost(1800.0, "v100-0"),
        DevicesTaken(2100.0, "p100-0", (1,)),
        NodeReturned(2600.0, "v100-0"),
        DevicesTaken(3000.0, "k80-1", (0,)),
        DevicesTaken(3300.0, "v100-0", ()),
    ]
    return _scenario(mechanism, _jobs(14, every_s=150.0), events)


def tenants_come_and_go(mechanism: Any) -> Scenario:
    """Return tenants that appear, change weight, cancel jobs and run out of jobs."""
    cancelled = [
        Job(id="back0", workload="big", gang=2, total_steps=10**7, tenant="yellow"),
        Job(id="back1", workload="small", total_steps=10**7, tenant="red"),
    ]
    jobs = [
        *cancelled,
        *_jobs(6, every_s=100.0, tenants=("red", "blue")),
        *_jobs(6, every_s=100.0, tenants=("green",), first_at=1500.0, prefix="late"),
    ]
    events: list[Event] = [
        TenantChanged(700.0, Tenant("red", weight=3.0)),
        JobCancelled(900.0, "back0"),
        TenantChanged(1200.0, Tenant("green", weight=2.0)),
        JobCancelled(1700.0, "back1"),
        TenantChanged(2500.0, Tenant("nobody")),
    ]
    return replace(_scenario(mechanism, jobs, events), window=(len(cancelled), len(jobs)))


def gang_without_its_node(mechanism: Any) -> Scenario:
    """Return a gang that needs all V100s, half of which are lost for long, and small jobs."""
    gang = Job(id="gang", workload="big", gang=4, total_steps=4000, accelerators=("v100",))
    small = [
        Job(id=f"small{i}", workload="small", total_steps=1000, arrival_at=50.0 + i)
        for i in range(6)
    ]
    events: list[Event] = [NodeLost(0.0, "v100-1"), NodeReturned(20_000.0, "v100-1")]
    return _scenario(mechanism, [gang, *small], events)


def endless_small_jobs(mechanism: Any) -> Scenario:
    """Return a large and a long job among short jobs that keep all devices busy for five hours."""
    arrivals = [
        Job(
            id=f"short{i}",
            workload="small",
            total_steps=1500,
            arrival_at=60.0 * i,
            tenant=("red", "blue")[i % 2],
        )
        for i in range(300)
    ]
    large = Job(id="large", workload="small", gang=4, total_steps=4000, arrival_at=900.0)
    long = Job(id="long", workload="small", total_steps=6000, arrival_at=900.0)
    jobs = sorted([*arrivals, large, long], key=lambda job: job.arrival_at)
    return _scenario(mechanism, jobs)


def _jobs(
    count: int,
    *,
    every_s: float,
    tenants: Sequence[str] = ("red", "blue", "green"),
    first_at: float = 0.0,
    prefix: str = "job",
) -> list[Job]:
    """Return a fixed list of jobs with different properties."""
    return [
        Job(
            id=f"{prefix}{i}",
            workload=_WORKLOADS[i % len(_WORKLOADS)],
            gang=(1, 2, 1, 4, 1, 1)[i % 6],
            total_steps=2000 + 1777 * i % 6000,
            arrival_at=first_at + every_s * i,
            weight=(1.0, 1.0, 2.0)[i % 3],
            tenant=tenants[i % len(tenants)],
        )
        for i in range(count)
    ]


def _scenario(mechanism: Any, jobs: Sequence[Job], events: Sequence[Event] = ()) -> Scenario:
    return Scenario(
        cluster=Cluster.of(dict.fromkeys(ACCELERATORS, 4), per_node=2),
        speeds=SPEEDS,
        jobs=jobs,
        mechanism=mechanism,
        restore_cost_s=5.0,
        # All external events at given times enter a simulation this way.
        node_events=cast("Sequence[NodeEvent]", events),
    )
