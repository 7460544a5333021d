"""What the simulator says of a run on Slurm: the same jobs, speeds, policy and core.

What a lease costs besides its steps is measured on the leases of the run: from the order to launch
it to its first step, and from its last step to the report that it has ended. Their mean is all
that the simulator is told; when the run was over it is not.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean
from typing import Any

from tests.e2e.slurm_server import SlurmServer

from fairlead.files import read_speeds
from fairlead.mechanisms.choose import realise
from fairlead.model.job import Job
from fairlead.server.serve import plan_lead_s
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
        Lease(one["began"] - launched[one["lease"]], ended[one["lease"]] - one["ended"])
        for one in lines
        if one["began"] is not None
    ]


def predicted_makespan_s(
    server: SlurmServer, jobs: list[dict[str, Any]], policy: str, round_s: float, lease_s: float
) -> float:
    """Return how long the simulator takes for jobs that a server shows, submitted as they were."""
    first = first_plan_at(server)
    costs = Costs(preload_s=lease_s, resume_s=lease_s, migrate_s=lease_s)
    mechanism = realise(policy, None, round_s)
    listed = [
        Job(
            id=job["id"],
            workload=job["workload"],
            total_steps=job["total_steps"],
            gang=job["gang"],
            tenant=job["tenant"],
            arrival_at=max(job["submitted_at"] - first, 0.0),
            accelerators=tuple(job["accelerators"]) if job.get("accelerators") else None,
        )
        for job in sorted(jobs, key=lambda job: job["submitted_at"])
    ]
    scenario = Scenario(
        cluster=server.slurm.cluster,
        speeds=read_speeds(str(server.speeds)),
        jobs=listed,
        mechanism=mechanism,
        plan_lead_s=plan_lead_s(round_s),
        physics=Physics(effects=frozenset({"costs"}), natures={OTHERS: Nature(costs=costs)}),
    )
    record, _ = simulate(scenario)
    submitted = min(float(job["submitted_at"]) for job in jobs)
    return float(record.finished_at.max()) + first - submitted


def first_plan_at(server: SlurmServer) -> float:
    """Return when the first plan that was carried out was asked for: it knew who had come by then.

    While none is carried out, each job that comes makes the server ask again.
    """
    store = Store(f"sqlite:///{server.data / 'fairlead.db'}")
    asked: list[float] = []
    some = False
    try:
        for event in (json.loads(record.body) for record in store.load_events(0)):
            some |= event["is"] == "JobSubmitted"
            if event["is"] == "PlanDue" and some:
                asked.append(float(event["at"]))
            elif event["is"] == "PlanReady" and event["version"] == len(asked):
                return asked[-1]
    finally:
        store.close()
    raise AssertionError("no plan was carried out")


def lease_s(leases: list[Lease]) -> float:
    """Return what a lease costs besides its steps, on average."""
    return fmean(one.starts_s + one.ends_s for one in leases)


def _time(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["timestamp"]).timestamp()
