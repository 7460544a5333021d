"""Device time of elastic jobs counts the devices of each lease, not the job's gang."""

import numpy as np
import pytest

from fairlead.core import Scheduler, encode_event, load_state, replay, save_state
from fairlead.mechanisms.gandiva import Gandiva
from fairlead.model.cluster import Cluster
from fairlead.model.events import Event
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.usage_decay import History
from fairlead.sim.driver import simulate
from fairlead.sim.record import Record
from fairlead.sim.scenario import Scenario

MINUTE = 60.0
CLUSTER = Cluster.of({"p100": 4}, per_node=4)
SPEEDS = SpeedTable({SpeedKey("m", gang, "p100"): 10.0 * gang for gang in (1, 2, 3, 4)})
# The elastic job grows from one device to two and four as others finish, then shrinks again.
JOBS = [
    Job(id="grows", workload="m", total_steps=1.2e5, max_gang=4, tenant="grows"),
    Job(id="one", workload="m", total_steps=25 * 600, tenant="others"),
    Job(id="two", workload="m", gang=2, total_steps=45 * 1200, tenant="others"),
    Job(id="late", workload="m", gang=2, total_steps=2e4, arrival_at=75 * 60, tenant="others"),
]


def run() -> tuple[Record, Scheduler[object], list[Event]]:
    events: list[Event] = []
    record, scheduler = simulate(
        Scenario(
            cluster=CLUSTER,
            speeds=SPEEDS,
            jobs=JOBS,
            mechanism=Gandiva(),
            tenants=(Tenant("grows"), Tenant("others")),
            history=History(64 * MINUTE),
            intervals=True,
            on_event=events.append,
        )
    )
    assert scheduler is not None
    return record, scheduler, events


def held(record: Record, jobs: set[int], until: float) -> float:
    """Return the recorded device-seconds of these jobs' leases."""
    assert record.intervals is not None
    number, _, size, start, end = record.intervals.columns()
    chosen = np.isin(number, list(jobs)) & (start < until)
    return float((size * (np.minimum(end, until) - start))[chosen].sum())


def test_device_time_counts_the_devices_held() -> None:
    record, scheduler, _ = run()
    assert record.intervals is not None
    assert {1, 2, 4} <= set(record.intervals.columns()[2][record.intervals.columns()[0] == 0])
    device_s = scheduler.leases.device_s(record.ended_at)
    assert device_s.tolist() == [[pytest.approx(s)] for s in record.device_s[:, 0].tolist()]
    received_s = float(scheduler.jobs.received_s[0, 0])
    assert received_s < 0.8 * device_s[0, 0], "received time is not device time"


@pytest.mark.parametrize("minutes", [20.0, 40.0, 60.0, 80.0])
def test_device_time_survives_a_restart_and_counts_as_usage(minutes: float) -> None:
    record, _, events = run()
    until = minutes * MINUTE
    lines = [encode_event(event) for event in events if event.at <= until]
    first = replay(Scheduler(CLUSTER, SPEEDS, Gandiva()), lines)
    scheduler = Scheduler(CLUSTER, SPEEDS, Gandiva())
    load_state(scheduler, save_state(first))
    assert scheduler.leases.device_s(until)[0, 0] == pytest.approx(held(record, {0}, until))
    counted_at, total = scheduler.usage.counted_at, scheduler.usage.total
    assert counted_at > until - 10 * MINUTE
    assert total.tolist() == [
        pytest.approx(held(record, jobs, counted_at)) for jobs in ({0}, {1, 2, 3})
    ]
