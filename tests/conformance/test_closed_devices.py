"""Cordoned nodes and devices that others hold: nothing new starts there, what runs goes on."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.conformance.registered import NAMES, made

from fairlead.core import Scheduler, load_state, replay, save_state, state_bytes
from fairlead.core.event_log import encode_event
from fairlead.model import events as ev
from fairlead.model.commands import Command, Launch, Preempt
from fairlead.model.errors import ProtocolError
from fairlead.sim.driver import simulate
from fairlead.testing.mechanisms.checked import watched
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
    """Looks at every command that a scheduler gives while devices are closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.launched_elsewhere = 0
        self.stayed = 0
        self.log: list[str] = []
        handle = Scheduler.handle

        def watching(scheduler: Scheduler[Any], event: ev.Event) -> list[Command]:
            self.log.append(encode_event(event))
            before = self._leases_there(scheduler)
            commands = handle(scheduler, event)
            self._check(scheduler, event, commands, before)
            return commands

        monkeypatch.setattr(Scheduler, "handle", watching)

    def _leases_there(self, scheduler: Scheduler[Any]) -> set[int]:
        """Return the leases that hold closed devices, before an event."""
        leases, shut = scheduler.leases, self._shut(scheduler)
        return set(leases.lease[leases.on_devices(shut)].tolist())

    def _shut(self, scheduler: Scheduler[Any]) -> Any:
        nodes = scheduler.nodes
        return nodes.taken | np.isin(scheduler.cluster.node_of, sorted(nodes.cordoned))

    def _check(
        self,
        scheduler: Scheduler[Any],
        event: ev.Event,
        commands: Sequence[Command],
        before: set[int],
    ) -> None:
        shut = self._shut(scheduler)
        decided = isinstance(event, ev.PlanReady | ev.RoundEnd | ev.PlanDue)
        for command in commands:
            if isinstance(command, Launch) and shut.any():
                assert not shut[command.on.device].any(), event
                self.launched_elsewhere += len(command.lease)
            if isinstance(command, Preempt) and decided:
                told = set(command.lease.tolist()) & before
                assert not told, event
        if decided:
            self.stayed += len(before)


@pytest.mark.parametrize("events", [CORDONS, TAKEN], ids=["cordoned", "taken"])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_starts_on_a_closed_device_and_what_runs_there_goes_on(
    name: str, events: Sequence[ev.NodeEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = nodes_come_and_go(made(name))
    jobs = [
        replace(job, arrival_at=job.arrival_at / 5, total_steps=3 * job.total_steps)
        for job in scenario.jobs
    ]
    scenario = replace(
        scenario,
        jobs=jobs,
        mechanism=watched(scenario.mechanism, jobs),
        node_events=events,
    )
    observed = Observed(monkeypatch)
    record, scheduler = simulate(scenario)
    assert np.isfinite(record.finished_at).all()
    assert observed.launched_elsewhere > 0
    assert observed.stayed > 0
    monkeypatch.undo()
    assert scheduler is not None
    fresh = Scheduler(scenario.cluster, scenario.speeds, made(name))
    assert state_bytes(replay(fresh, observed.log)) == state_bytes(scheduler)


def test_a_cordon_survives_saving_and_loading() -> None:
    scenario = nodes_come_and_go(made("shares"))
    scheduler = Scheduler(scenario.cluster, scenario.speeds, made("shares"))
    scheduler.handle(ev.NodeCordoned(0.0, "v100-0"))
    scheduler.handle(ev.JobSubmitted(0.0, scenario.jobs[0]))
    again = Scheduler(scenario.cluster, scenario.speeds, made("shares"))
    load_state(again, save_state(scheduler))
    assert again.nodes.cordoned == scheduler.nodes.cordoned == {0}
    snap = again.snapshot(0.0, 0.0)
    assert snap.capacity.tolist() == [2, 4, 4]
    assert 0 not in snap.usable


def test_devices_of_others_are_not_shared_out_and_are_remembered() -> None:
    scenario = nodes_come_and_go(made("shares"))
    scheduler = Scheduler(scenario.cluster, scenario.speeds, made("shares"))
    scheduler.handle(ev.DevicesTaken(0.0, "v100-1", (0,)))
    scheduler.handle(ev.DevicesTaken(0.0, "p100-0", (0, 1)))
    scheduler.handle(ev.JobSubmitted(0.0, scenario.jobs[0]))
    again = Scheduler(scenario.cluster, scenario.speeds, made("shares"))
    load_state(again, save_state(scheduler))
    assert state_bytes(again) == state_bytes(scheduler)
    assert again.nodes.taken_on("v100-1") == (0,)
    snap = again.snapshot(0.0, 0.0)
    assert snap.capacity.tolist() == snap.devices.tolist() == [3, 2, 4]
    assert set(range(12)) - set(snap.usable.tolist()) == {2, 4, 5}
    again.handle(ev.DevicesTaken(1.0, "p100-0", ()))
    assert again.snapshot(1.0, 1.0).capacity.tolist() == [3, 4, 4]


def test_a_device_that_a_node_does_not_have_cannot_be_taken() -> None:
    scenario = nodes_come_and_go(made("shares"))
    scheduler = Scheduler(scenario.cluster, scenario.speeds, made("shares"))
    with pytest.raises(ProtocolError, match="has 2 devices"):
        scheduler.handle(ev.DevicesTaken(0.0, "v100-0", (2,)))


def test_a_cluster_that_is_cordoned_whole_runs_what_it_runs_to_the_end() -> None:
    scenario = nodes_come_and_go(made("shares"))
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
