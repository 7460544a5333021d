"""Nothing new starts on cordoned nodes and taken devices; running leases continue."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.conformance.registered import NAMES, make_mechanism

from fairlead.core import Scheduler, load_state, replay, save_state, state_bytes
from fairlead.core.event_log import encode_event
from fairlead.model import events as ev
from fairlead.model.commands import Command, Launch, Preempt
from fairlead.model.errors import ProtocolError
from fairlead.sim.driver import simulate
from fairlead.testing.mechanisms.checked import checked_mechanism
from fairlead.testing.mechanisms.scenarios import nodes_come_and_go

CORDONS: Sequence[ev.NodeEvent] = (
    ev.NodeCordoned(500.0, "v100-0"),
    ev.NodeCordoned(900.0, "p100-1"),
    ev.NodeLost(1500.0, "k80-0"),
    ev.NodeCordoned(2600.0, "v100-0", cordoned=False),
    ev.NodeReturned(2600.0, "k80-0"),
    ev.NodeCordoned(3000.0, "v100-1"),
    ev.NodeLost(3600.0, "v100-1"),
    ev.NodeReturned(5000.0, "v100-1"),
    ev.NodeCordoned(9000.0, "v100-1", cordoned=False),
)
TAKEN: Sequence[ev.NodeEvent] = (
    ev.DevicesTaken(500.0, "v100-0", (1,)),
    ev.DevicesTaken(900.0, "p100-1", (0, 1)),
    ev.NodeLost(1500.0, "k80-0"),
    ev.DevicesTaken(2600.0, "v100-0", (0,)),
    ev.NodeReturned(2600.0, "k80-0"),
    ev.DevicesTaken(3000.0, "v100-1", (0, 1)),
    ev.DevicesTaken(3000.0, "p100-1", (1,)),
    ev.NodeLost(3600.0, "v100-1"),
    ev.NodeReturned(5000.0, "v100-1"),
    ev.DevicesTaken(9000.0, "v100-1", ()),
)


class Observed:
    """Checks every command of a scheduler while devices are closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.launched_elsewhere = 0
        self.stayed = 0
        self.log: list[str] = []
        handle = Scheduler.handle

        def checked_handle(scheduler: Scheduler[Any], event: ev.Event) -> list[Command]:
            self.log.append(encode_event(event))
            before = self._leases_on_closed(scheduler)
            commands = handle(scheduler, event)
            self._check(scheduler, event, commands, before)
            return commands

        monkeypatch.setattr(Scheduler, "handle", checked_handle)

    def _leases_on_closed(self, scheduler: Scheduler[Any]) -> set[int]:
        """Return the leases that hold closed devices."""
        leases, closed = scheduler.leases, self._closed(scheduler)
        return set(leases.lease[leases.on_devices(closed)].tolist())

    def _closed(self, scheduler: Scheduler[Any]) -> Any:
        nodes = scheduler.nodes
        return nodes.taken | np.isin(scheduler.cluster.node_of, sorted(nodes.cordoned))

    def _check(
        self,
        scheduler: Scheduler[Any],
        event: ev.Event,
        commands: Sequence[Command],
        before: set[int],
    ) -> None:
        closed = self._closed(scheduler)
        decided = isinstance(event, ev.PlanReady | ev.RoundEnd | ev.PlanDue)
        for command in commands:
            if isinstance(command, Launch) and closed.any():
                assert not closed[command.on.device].any(), event
                self.launched_elsewhere += len(command.lease)
            if isinstance(command, Preempt) and decided:
                preempted = set(command.lease.tolist()) & before
                assert not preempted, event
        if decided:
            self.stayed += len(before)


@pytest.mark.parametrize("events", [CORDONS, TAKEN], ids=["cordoned", "taken"])
@pytest.mark.parametrize("name", NAMES)
def test_closed_devices_keep_their_leases_and_get_no_new_ones(
    name: str, events: Sequence[ev.NodeEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = nodes_come_and_go(make_mechanism(name))
    jobs = [
        replace(job, arrival_at=job.arrival_at / 5, total_steps=3 * job.total_steps)
        for job in scenario.jobs
    ]
    scenario = replace(
        scenario,
        jobs=jobs,
        mechanism=checked_mechanism(scenario.mechanism, jobs),
        node_events=events,
    )
    observed = Observed(monkeypatch)
    record, scheduler = simulate(scenario)
    assert np.isfinite(record.finished_at).all()
    assert observed.launched_elsewhere > 0
    assert observed.stayed > 0
    monkeypatch.undo()
    assert scheduler is not None
    fresh = Scheduler(scenario.cluster, scenario.speeds, make_mechanism(name))
    assert state_bytes(replay(fresh, observed.log)) == state_bytes(scheduler)


def test_cordon_survives_saving_and_loading() -> None:
    scenario = nodes_come_and_go(make_mechanism("shares"))
    scheduler = Scheduler(scenario.cluster, scenario.speeds, make_mechanism("shares"))
    scheduler.handle(ev.NodeCordoned(0.0, "v100-0"))
    scheduler.handle(ev.JobSubmitted(0.0, scenario.jobs[0]))
    restored = Scheduler(scenario.cluster, scenario.speeds, make_mechanism("shares"))
    load_state(restored, save_state(scheduler))
    assert restored.nodes.cordoned == scheduler.nodes.cordoned == {0}
    snap = restored.snapshot(0.0, 0.0)
    assert snap.capacity.tolist() == [2, 4, 4]
    assert 0 not in snap.usable


def test_taken_devices_are_not_allocated_and_are_persisted() -> None:
    scenario = nodes_come_and_go(make_mechanism("shares"))
    scheduler = Scheduler(scenario.cluster, scenario.speeds, make_mechanism("shares"))
    scheduler.handle(ev.DevicesTaken(0.0, "v100-1", (0,)))
    scheduler.handle(ev.DevicesTaken(0.0, "p100-0", (0, 1)))
    scheduler.handle(ev.JobSubmitted(0.0, scenario.jobs[0]))
    restored = Scheduler(scenario.cluster, scenario.speeds, make_mechanism("shares"))
    load_state(restored, save_state(scheduler))
    assert state_bytes(restored) == state_bytes(scheduler)
    assert restored.nodes.taken_on("v100-1") == (0,)
    snap = restored.snapshot(0.0, 0.0)
    assert snap.capacity.tolist() == snap.devices.tolist() == [3, 2, 4]
    assert set(range(12)) - set(snap.usable.tolist()) == {2, 4, 5}
    restored.handle(ev.DevicesTaken(1.0, "p100-0", ()))
    assert restored.snapshot(1.0, 1.0).capacity.tolist() == [3, 4, 4]


def test_unknown_device_cannot_be_taken() -> None:
    scenario = nodes_come_and_go(make_mechanism("shares"))
    scheduler = Scheduler(scenario.cluster, scenario.speeds, make_mechanism("shares"))
    with pytest.raises(ProtocolError, match="has 2 devices"):
        scheduler.handle(ev.DevicesTaken(0.0, "v100-0", (2,)))


def test_fully_cordoned_cluster_finishes_its_running_jobs() -> None:
    scenario = nodes_come_and_go(make_mechanism("shares"))
    nodes = [node.id for node in scenario.cluster.nodes]
    jobs = [replace(job, arrival_at=0.0, gang=1) for job in scenario.jobs]
    assert len(jobs) == 14 > len(scenario.cluster.node_of) == 12
    events = [ev.NodeCordoned(100.0, node) for node in nodes]
    scenario = replace(
        scenario,
        jobs=jobs,
        node_events=events,
    )
    record, _ = simulate(scenario)
    assert 8 <= np.isfinite(record.finished_at).sum() <= 12  # one workload runs on no K80
