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
from statistics import fmean
from typing import Any, get_args

import numpy as np
from tests.e2e.slurm_server import SlurmServer

from fairlead.core import decode_event
from fairlead.files import read_speeds
from fairlead.mechanisms.choose import realise_live
from fairlead.model.events import Event, JobSubmitted, LeasesEnded, NodeEvent, NodeReturned
from fairlead.server.rules import plan_lead_s
from fairlead.sim.driver import simulate
from fairlead.sim.physics import OTHERS, Costs, Nature, Physics
from fairlead.sim.scenario import Scenario
from fairlead.store import Store


@dataclass(frozen=True)
class Lease:
    """What one lease cost besides its steps, in seconds."""

    starts_s: float
    """from the order to launch it to its first step"""
    ends_s: float
    """from its last step to the report of its end"""
    late_s: float
    """by which its steps took longer than the speeds table says"""

    @property
    def costs_s(self) -> float:
        return self.starts_s + self.ends_s + self.late_s


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
    launched = {one["lease"]: _time(one) for one in server.said("lease.started")}
    ended = {one["lease"]: _time(one) for one in server.said("lease.ended")}
    lines = [
        json.loads(line)
        for path in server.root.glob("*.0.leases")
        for line in path.read_text().splitlines()
    ]
    return [
        Lease(
            one["began"] - launched[one["lease"]],
            ended[one["lease"]] - one["ended"],
            max(one["ended"] - one["began"] - one["steps"] / one["emulated_steps_per_s"], 0.0),
        )
        for one in lines
        if one["steps"]
    ]


@dataclass(frozen=True)
class Course:
    """A run that is over: what came from outside, how long it took, and what leases cost."""

    took_s: float
    """from the return of the nodes to the end of the last job"""
    leases: Sequence[Lease]
    _simulated: Callable[[Physics], float]

    @property
    def lease_s(self) -> float:
        """What a lease costs besides its steps, on average."""
        return fmean(one.costs_s for one in self.leases)

    def predicted_s(self) -> float:
        """Return how long the simulator takes if every lease costs the average."""
        return self._simulated(_physics({OTHERS: _costs([self.lease_s] * 3)}))

    def predictions_s(self, draws: int = 40) -> list[float]:
        """Return how long it takes if leases cost what others of the run did, drawn by lot.

        One and the same run may take several courses when a tenth of a second decides whether a
        job ends in a round or in the next one; these are they.
        """
        rng, known = np.random.default_rng(0), [one.costs_s for one in self.leases]
        workloads = ("big", "small")
        drawn = [
            {name: _costs(rng.choice(known, 3).tolist()) for name in workloads}
            for _ in range(draws)
        ]
        return [self._simulated(_physics(natures)) for natures in drawn]


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
        mechanism=realise_live(policy, None, round_s),
        plan_lead_s=plan_lead_s(round_s),
        node_events=[
            replace(event, at=max(event.at - zero, 0.0))
            for event in events
            if isinstance(event, get_args(NodeEvent))
        ],
    )

    def simulated(physics: Physics) -> float:
        record, _ = simulate(replace(scenario, physics=physics))
        return float(record.finished_at.max()) - back

    return Course(over - back, measured(server), simulated)


def _events(server: SlurmServer, policy: str, round_s: float) -> list[Event]:
    memory_type = type(realise_live(policy, None, round_s).initial())
    store = Store(f"sqlite:///{server.data / 'fairlead.db'}")
    try:
        return [decode_event(record.body, memory_type) for record in store.load_events(0)]
    finally:
        store.close()


def _costs(costs_s: Sequence[float]) -> Nature:
    preload_s, resume_s, migrate_s = costs_s
    return Nature(costs=Costs(preload_s=preload_s, resume_s=resume_s, migrate_s=migrate_s))


def _physics(natures: dict[str, Nature]) -> Physics:
    return Physics(effects=frozenset({"costs"}), natures=natures)


def _time(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["timestamp"]).timestamp()
