"""The demo's cluster, tenants and jobs, and the same jobs as a trace for the simulator."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.data import DEFAULT_SPEEDS
from fairlead.files import parse_cluster, read_speeds
from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.arrays import FloatArray
from fairlead.model.job import Job
from fairlead.model.tenants.tenant import Tenant
from fairlead.sim.driver import simulate
from fairlead.sim.physics.effects import Physics, TransitionCosts
from fairlead.sim.scenario import Scenario

DEVICES = "v100=2,p100=2,k80=4"
ROUND_S = 5.0
TENANTS = (Tenant("vision", 2.0), Tenant("speech", 1.0), Tenant("research", 1.0))
_JOB_TEMPLATES = {
    "vision": ("ResNet-50", "DCGAN"),
    "speech": ("LSTM", "GRU"),
    "research": ("SuperResolution", "VAE"),
}


@dataclass(frozen=True, slots=True)
class DemoJob:
    """One job to submit."""

    tenant: str
    workload: str
    steps: int
    weight: float
    arrival_s: float


def demo_jobs(count: int = 21, *, seconds: float = 9.0) -> list[DemoJob]:
    """Return jobs of all tenants, of ``seconds`` to twice that long alone on a v100."""
    speeds = read_speeds(DEFAULT_SPEEDS)
    jobs = []
    for i in range(count):
        tenant = TENANTS[i % len(TENANTS)]
        workload = _JOB_TEMPLATES[tenant.id][i // len(TENANTS) % 2]
        alone_s = seconds * (1 + (i * 7 % 11) / 10)
        steps = max(int(alone_s * speeds.speed(workload, ("v100",))), 1)
        jobs.append(DemoJob(tenant.id, workload, steps, tenant.weight, 0.4 * i))
    return jobs


def devices() -> int:
    """Return the number of devices."""
    return int(parse_cluster(DEVICES).counts.sum())


def normal_speeds() -> dict[str, float]:
    """Return workload → steps per second with an equal share of every device."""
    cluster, speeds = parse_cluster(DEVICES), read_speeds(DEFAULT_SPEEDS)
    rows = {name: speeds.row(name, 1, cluster.accelerators) for name in speeds.workloads}
    return {
        name: float((row * cluster.counts).sum() / cluster.counts.sum())
        for name, row in rows.items()
    }


def predicted(
    jobs: Sequence[DemoJob],
    arrivals_s: Sequence[float],
    policy: str,
    *,
    start_s: float,
    end_s: float,
    plan_lead_s: float,
    round_s: float = ROUND_S,
) -> FloatArray:
    """Return the simulated completion times of the same jobs with their actual arrivals.

    ``start_s`` and ``end_s`` are the overheads of each lease: starting processes and loading a
    checkpoint; writing a checkpoint and releasing the devices. ``plan_lead_s`` is the time
    between planning a round and its start.
    """
    costs = TransitionCosts(preload_s=start_s, resume_s=start_s, migrate_s=start_s, leave_s=end_s)
    record, _ = simulate(
        Scenario(
            cluster=parse_cluster(DEVICES),
            speeds=read_speeds(DEFAULT_SPEEDS),
            jobs=tuple(
                Job(
                    id=str(i),
                    workload=job.workload,
                    total_steps=float(job.steps),
                    tenant=job.tenant,
                    weight=job.weight,
                    arrival_at=arrival_s,
                )
                for i, (job, arrival_s) in enumerate(zip(jobs, arrivals_s, strict=True))
            ),
            mechanism=create_mechanism(policy, None, round_s),
            tenants=TENANTS,
            plan_lead_s=plan_lead_s,
            protect_starts=True,
            physics=Physics.with_costs(costs),
        )
    )
    return record.finished_at
