"""What the simulator says of a run on Slurm: the same jobs, nodes, speeds, policy and core.

It is told what came from outside, when jobs were submitted and nodes came and went, and what a
lease costs besides its steps. That is measured on the leases of the run: from the order to launch
it to its first step, from its last step to the report that it has ended, and what its steps took
longer than the speeds table says. When jobs ended it is not told.
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
    OTHERS,
    Costs,
    Physics,
    WorkloadPhysics,
)
from fairlead.sim.scenario import Scenario
from fairlead.store import Store


@dataclass(frozen=True)
class Lease:
    """What one lease cost besides its steps, in seconds."""

    kind: str
    """of its start: its job's first one, the next one on the same node, or on another node"""
    starts_s: float
    """from the order to launch it to its first step"""
    ends_s: float
    """from its last step to the report of its end"""
    late_s: float
    """by which its steps took longer than the speeds table says"""

    @property
    def begins_s(self) -> float:
        return self.starts_s + self.late_s

    @property
    def costs_s(self) -> float:
        return self.begins_s + self.ends_s


@contextmanager
def nodes_away(server: SlurmServer) -> Iterator[None]:
    """Drain all nodes for a while: the first plan after it knows every job submitted meanwhile.

    Where rounds are short a plan that knows one job more or less makes another course of it all.
    """
    slurm = server.slurm
    names = ",".join(node.id for node in slurm.nodes)

    def all_gone() -> bool:
        return not any(node["up"] for node in server.client.get("/v1/nodes"))

    slurm.run("scontrol", "update", f"nodename={names}", "state=drain", "reason=later")
    try:
        server.until(all_gone, "all nodes to be away")
        yield
    finally:
        slurm.run("scontrol", "update", f"nodename={names}", "state=resume")


def measured(server: SlurmServer) -> list[Lease]:
    """Return the leases under which a job made steps."""
    kinds: dict[int, str] = {}
    last: dict[str, str] = {}
    for one in server.said("slurm.submitted"):
        before, last[one["job"]] = last.get(one["job"]), one["nodes"][0]
        same = "resume" if before == one["nodes"][0] else "migrate"
        kinds[one["lease"]] = "preload" if before is None else same
    launched = {one["lease"]: _time(one) for one in server.said("lease.started")}
    ended = {one["lease"]: _time(one) for one in server.said("lease.ended")}
    return [
        Lease(
            kinds[one["lease"]],
            one["began"] - launched[one["lease"]],
            ended[one["lease"]] - one["ended"],
            max(one["ended"] - one["began"] - one["steps"] / one["emulated_steps_per_s"], 0.0),
        )
        for one in _said_by_jobs(server)
    ]


def _said_by_jobs(server: SlurmServer) -> list[dict[str, Any]]:
    """Return what rank 0 of jobs wrote of leases under which it made steps."""
    lines = [
        json.loads(line)
        for path in server.root.glob("*.0.leases")
        for line in path.read_text().splitlines()
    ]
    return [one for one in lines if one["steps"]]


@dataclass(frozen=True)
class Course:
    """A run that is over: what came from outside, how long it took, and what leases cost."""

    took_s: float
    """from the return of the nodes to the end of the last job"""
    leases: Sequence[Lease]
    _simulated: Callable[[Physics], tuple[float, list[Event]]]
    _write: Callable[[Path, list[Event]], None]

    @property
    def lease_s(self) -> float:
        """What a lease costs besides its steps, on average."""
        return fmean(one.costs_s for one in self.leases)

    def predicted_s(self, records: Path | None = None) -> float:
        """Return how long the simulator takes if every lease costs the average of its kind.

        ``records`` is where all leases, live and simulated, are written side by side.
        """
        begins_s = [self._begins_s(kind) for kind in ("preload", "resume", "migrate")]
        ends_s = fmean(one.ends_s for one in self.leases)
        took_s, events = self._simulated(_physics({OTHERS: _costs(begins_s, ends_s)}))
        if records is not None:
            self._write(records, events)
        return took_s

    def _begins_s(self, kind: str) -> float:
        """Return what starts of a kind cost on average; where there were none, what all did."""
        alike = [one for one in self.leases if one.kind == kind]
        return fmean(one.begins_s for one in alike or self.leases)

    def predictions_s(self, draws: int = 40) -> list[float]:
        """Return how long it takes if leases cost what others of the run did, drawn by lot.

        One and the same run may take several courses when a tenth of a second decides whether a
        job ends in a round or in the next one; these are they.
        """
        rng, workloads = np.random.default_rng(0), ("big", "small")
        begin_s, end_s = np.array([(one.begins_s, one.ends_s) for one in self.leases]).T
        drawn = [
            {
                name: _costs(rng.choice(begin_s, 3).tolist(), float(rng.choice(end_s)))
                for name in workloads
            }
            for _ in range(draws)
        ]
        return [self._simulated(_physics(natures))[0] for natures in drawn]


def course(server: SlurmServer, policy: str, round_s: float) -> Course:
    """Return the course of a server's run, all of whose nodes were away until jobs had come."""
    events = _events(server, policy, round_s)
    submitted = [event for event in events if isinstance(event, JobSubmitted)]
    zero = submitted[0].at
    back = max(event.at for event in events if isinstance(event, NodeReturned)) - zero
    over = max(event.at for event in events if isinstance(event, LeasesEnded)) - zero
    scenario = Scenario(
        cluster=server.slurm.cluster,
        speeds=read_speeds(str(server.speeds)),
        jobs=[replace(event.job, arrival_at=event.at - zero) for event in submitted],
        mechanism=create_live_mechanism(policy, None, round_s),
        plan_lead_s=plan_lead_s(round_s),
        node_events=[
            replace(event, at=max(event.at - zero, 0.0))
            for event in events
            if isinstance(event, get_args(NodeEvent))
        ],
    )

    def simulated(physics: Physics) -> tuple[float, list[Event]]:
        happened: list[Event] = []
        record, _ = simulate(replace(scenario, physics=physics, on_event=happened.append))
        return float(record.finished_at.max()) - back, happened

    def core() -> Scheduler[Any]:
        mechanism, lead_s = create_live_mechanism(policy, None, round_s), scenario.plan_lead_s
        return Scheduler(scenario.cluster, scenario.speeds, mechanism, plan_lead_s=lead_s)

    def write(path: Path, happened: list[Event]) -> None:
        sides = {
            "live": (zero + back, lease_records(events, core())),
            "simulated": (back, lease_records(happened, core())),
        }
        lines = _said_by_jobs(server)
        write_records(path, sides, {one["lease"]: (one["began"], one["ended"]) for one in lines})

    return Course(over - back, measured(server), simulated, write)


def _events(server: SlurmServer, policy: str, round_s: float) -> list[Event]:
    memory_type = type(create_live_mechanism(policy, None, round_s).initial())
    store = Store(f"sqlite:///{server.data / 'fairlead.db'}")
    try:
        return [decode_event(record.body, memory_type) for record in store.load_events(0)]
    finally:
        store.close()


def _costs(begins_s: Sequence[float], leave_s: float) -> WorkloadPhysics:
    preload_s, resume_s, migrate_s = begins_s
    costs = Costs(preload_s=preload_s, resume_s=resume_s, migrate_s=migrate_s, leave_s=leave_s)
    return WorkloadPhysics(costs=costs)


def _physics(natures: dict[str, WorkloadPhysics]) -> Physics:
    return Physics(effects=frozenset({"costs"}), natures=natures)


def _time(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["timestamp"]).timestamp()
