"""The simulator's prediction of a run, from profiled speeds and the run's measured costs."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from benchmarks.physical.record import Lease, RunRecord
from benchmarks.physical.scenario import tenants_of

from fairlead.files import read_speeds
from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Cluster, Node
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedTable
from fairlead.server.config.scheduling import plan_lead_s
from fairlead.sim.driver import simulate
from fairlead.sim.physics.effects import Physics, TransitionCosts
from fairlead.sim.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Errors:
    """A prediction's relative errors."""

    average_completion: float
    makespan: float
    worst_completion: float
    """the greatest of a single job"""


def measured_costs(leases: Iterable[Lease]) -> TransitionCosts:
    """Return the mean seconds of first starts, of returns to a device, of moves and of ends.

    Without any return in the run, a parked process is assumed to continue at once; without any
    hand-over, moves are assumed to start processes as late as all others.
    """
    start_s: dict[str, list[float]] = defaultdict(list)
    leave_s = []
    for lease in leases:
        began = "first" if lease.is_first else lease.began
        if lease.start_s is not None:
            start_s[began].append(lease.start_s)
        if lease.end_s is not None:
            leave_s.append(lease.end_s)
    started = start_s["first"] + start_s["start"]
    resume_s = _mean(start_s["resume"])
    return TransitionCosts(
        preload_s=_mean(start_s["first"]),
        resume_s=resume_s,
        move_s=max(_mean(start_s["start"], _mean(started)) - resume_s, 0.0),
        hand_over_s=fmean(start_s["hand-over"]) if start_s["hand-over"] else None,
        leave_s=_mean(leave_s),
    )


def predicted(record: RunRecord, speeds: SpeedTable, costs: TransitionCosts) -> FloatArray:
    """Return the simulated times at which the jobs of a run end, in their order."""
    mechanism = create_mechanism(record.policy, None, record.round_s)
    simulated, _ = simulate(
        Scenario(
            cluster=Cluster((Node("host", tuple(record.devices)),)),
            speeds=speeds,
            jobs=[
                Job(
                    id=str(i),
                    workload=job.workload,
                    total_steps=float(job.steps),
                    tenant=job.tenant,
                    arrival_at=job.arrival_s,
                )
                for i, job in enumerate(record.jobs)
            ],
            mechanism=mechanism,
            tenants=tenants_of({job.tenant for job in record.jobs}),
            plan_lead_s=plan_lead_s(record.round_s),
            protect_starts=True,
            parks=True,
            physics=Physics.with_costs(costs),
        )
    )
    return simulated.finished_at


def prediction_of(record: RunRecord) -> FloatArray:
    """Return the simulated ends of a run, from its profiled speeds and measured costs."""
    costs = measured_costs(lease for job in record.jobs for lease in job.leases)
    return predicted(record, read_speeds(record.speeds), costs)


def errors_of(record: RunRecord, ended_s: FloatArray) -> Errors:
    """Return the errors of simulated ends relative to the run's."""
    arrivals = [job.arrival_s for job in record.jobs]
    live = [job.ended_s - job.arrival_s for job in record.jobs]
    simulated = [end - arrival for end, arrival in zip(ended_s, arrivals, strict=True)]
    return Errors(
        average_completion=abs(_mean(simulated) / _mean(live) - 1),
        makespan=abs(float(ended_s.max()) / record.makespan_s - 1),
        worst_completion=max(abs(s / t - 1) for s, t in zip(simulated, live, strict=True)),
    )


def _mean(values: Sequence[float], default: float = 0.0) -> float:
    return fmean(values) if values else default
