"""Prediction of a run on Slurm by the simulator: same jobs, nodes, speeds, policy and core.

The simulator gets the external events (submissions, and nodes that came and went) and the overhead
of a lease, but not the ends of jobs. The overhead is measured on the leases of the run: from the
launch order to the first step, from the last step to the report of the end, and the time that
steps took beyond the speeds table.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

import numpy as np
from tests.e2e.slurm.server import SlurmServer
from tests.e2e.support.lease_records import lease_records, write_records

from fairlead.core import Scheduler, decode_event
from fairlead.files import read_speeds
from fairlead.mechanisms.factory import create_live_mechanism
from fairlead.model.events import Event, JobSubmitted, LeasesEnded, NodeEvent, NodeReturned
from fairlead.server.config.scheduling import plan_lead_s
from fairlead.sim.driver import simulate
from fairlead.sim.physics.effects import (
    OTHER_WORKLOADS,
    Physics,
    TransitionCosts,
    WorkloadPhysics,
)
from fairlead.sim.scenario import Scenario
from fairlead.store import Store


@dataclass(frozen=True)
class Lease:
    """Overhead of one lease, in seconds."""

    start: str
    """type of its start: preload (the first), resume (same node) or migrate (another node)"""
    starts_s: float
    """from the launch order to the first step"""
    ends_s: float
    """from the last step to the report of the end"""
    late_s: float
    """time that its steps took beyond the speeds table"""

    @property
    def begins_s(self) -> float:
        return self.starts_s + self.late_s

    @property
    def costs_s(self) -> float:
        return self.begins_s + self.ends_s


@contextmanager
def nodes_drained(server: SlurmServer) -> Iterator[None]:
    """Drain all nodes within the context, so that the first plan includes all jobs.

    With short rounds, one job more or less in the first plan changes the whole course.
    """
    slurm = server.slurm
    names = ",".join(node.id for node in slurm.nodes)

    def all_down() -> bool:
        return not any(node["up"] for node in server.client.get("/v1/nodes"))

    slurm.run("scontrol", "update", f"nodename={names}", "state=drain", "reason=later")
    try:
        server.until(all_down, "all nodes to be down")
        yield
    finally:
        slurm.run("scontrol", "update", f"nodename={names}", "state=resume")


def measured(server: SlurmServer) -> list[Lease]:
    """Return the leases with steps."""
    starts: dict[int, str] = {}
    last: dict[str, str] = {}
    for entry in server.log_events("slurm.submitted"):
        before, last[entry["job"]] = last.get(entry["job"]), entry["nodes"][0]
        later = "resume" if before == entry["nodes"][0] else "migrate"
        starts[entry["lease"]] = "preload" if before is None else later
    launched = {entry["lease"]: _time(entry) for entry in server.log_events("lease.started")}
    ended = {entry["lease"]: _time(entry) for entry in server.log_events("lease.ended")}
    return [
        Lease(
            starts[line["lease"]],
            line["began"] - launched[line["lease"]],
            ended[line["lease"]] - line["ended"],
            max(line["ended"] - line["began"] - line["steps"] / line["emulated_steps_per_s"], 0.0),
        )
        for line in _job_records(server)
    ]


def _job_records(server: SlurmServer) -> list[dict[str, Any]]:
    """Return the records that rank 0 of each job wrote for its leases with steps."""
    lines = [
        json.loads(line)
        for path in server.root.glob("*.0.leases")
        for line in path.read_text().splitlines()
    ]
    return [line for line in lines if line["steps"]]


@dataclass(frozen=True)
class Course:
    """A finished run: its external events, its duration and the overheads of its leases."""

    took_s: float
    """from the return of the nodes to the end of the last job"""
    leases: Sequence[Lease]
    _simulated: Callable[[Physics], tuple[float, list[Event]]]
    _write: Callable[[Path, list[Event]], None]

    @property
    def lease_s(self) -> float:
        """Average overhead of a lease."""
        return fmean(lease.costs_s for lease in self.leases)

    def predicted_s(self, records: Path | None = None) -> float:
        """Return the simulated duration if every lease has the average overhead of its start.

        ``records``: file for all leases, live and simulated side by side.
        """
        begins_s = [self._begins_s(start) for start in ("preload", "resume", "migrate")]
        ends_s = fmean(lease.ends_s for lease in self.leases)
        took_s, events = self._simulated(_physics({OTHER_WORKLOADS: _costs(begins_s, ends_s)}))
        if records is not None:
            self._write(records, events)
        return took_s

    def _begins_s(self, start: str) -> float:
        """Return the average overhead of a type of start, or of all starts if there was none."""
        alike = [lease for lease in self.leases if lease.start == start]
        return fmean(lease.begins_s for lease in alike or self.leases)

    def predictions_s(self, draws: int = 40) -> list[float]:
        """Return the simulated durations for overheads sampled from the run's leases.

        The same run can take several courses when a tenth of a second decides whether a job ends
        in one round or the next; the samples cover them.
        """
        rng, workloads = np.random.default_rng(0), ("big", "small")
        begin_s, end_s = np.array([(lease.begins_s, lease.ends_s) for lease in self.leases]).T
        drawn = [
            {
                name: _costs(rng.choice(begin_s, 3).tolist(), float(rng.choice(end_s)))
                for name in workloads
            }
            for _ in range(draws)
        ]
        return [self._simulated(_physics(by_workload))[0] for by_workload in drawn]


def course(server: SlurmServer, policy: str, round_s: float) -> Course:
    """Return the course of a server's run that started with ``nodes_drained``."""
    events = _events(server, policy, round_s)
    submitted = [event for event in events if isinstance(event, JobSubmitted)]
    zero = submitted[0].at
    back = max(event.at for event in events if isinstance(event, NodeReturned)) - zero
    end = max(event.at for event in events if isinstance(event, LeasesEnded)) - zero
    scenario = Scenario(
        cluster=server.slurm.cluster,
        speeds=read_speeds(str(server.speeds)),
        jobs=[replace(event.job, arrival_at=event.at - zero) for event in submitted],
        mechanism=create_live_mechanism(policy, None, round_s),
        plan_lead_s=plan_lead_s(round_s),
        protect_starts=True,
        node_events=[
            replace(event, at=max(event.at - zero, 0.0))
            for event in events
            if isinstance(event, get_args(NodeEvent))
        ],
    )

    def simulated(physics: Physics) -> tuple[float, list[Event]]:
        simulated_events: list[Event] = []
        record, _ = simulate(replace(scenario, physics=physics, on_event=simulated_events.append))
        return float(record.finished_at.max()) - back, simulated_events

    def core() -> Scheduler[Any]:
        mechanism, lead_s = create_live_mechanism(policy, None, round_s), scenario.plan_lead_s
        return Scheduler(scenario.cluster, scenario.speeds, mechanism, plan_lead_s=lead_s)

    def write(path: Path, simulated_events: list[Event]) -> None:
        sides = {
            "live": (zero + back, lease_records(events, core())),
            "simulated": (back, lease_records(simulated_events, core())),
        }
        lines = _job_records(server)
        steps_at = {line["lease"]: (line["began"], line["ended"]) for line in lines}
        write_records(path, sides, steps_at)

    return Course(end - back, measured(server), simulated, write)


def _events(server: SlurmServer, policy: str, round_s: float) -> list[Event]:
    memory_type = type(create_live_mechanism(policy, None, round_s).initial())
    store = Store(f"sqlite:///{server.data / 'fairlead.db'}")
    try:
        return [decode_event(record.body, memory_type) for record in store.load_events(0)]
    finally:
        store.close()


def _costs(begins_s: Sequence[float], leave_s: float) -> WorkloadPhysics:
    preload_s, resume_s, migrate_s = begins_s
    costs = TransitionCosts(
        preload_s=preload_s, resume_s=resume_s, migrate_s=migrate_s, leave_s=leave_s
    )
    return WorkloadPhysics(costs=costs)


def _physics(by_workload: dict[str, WorkloadPhysics]) -> Physics:
    return Physics(effects=frozenset({"costs"}), by_workload=by_workload)


def _time(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["timestamp"]).timestamp()
