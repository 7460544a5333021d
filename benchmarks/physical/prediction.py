"""The simulator's prediction of a run, from profiled speeds and the run's measured costs."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from benchmarks.physical.record import Belief, Lease, RunRecord
from benchmarks.physical.scenario import tenants_of

from fairlead.files import read_speeds
from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Cluster, Node
from fairlead.model.events import SpeedMeasured
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedTable
from fairlead.server.config.scheduling import plan_lead_s
from fairlead.sim.driver import simulate
from fairlead.sim.physics.effects import Physics, TransitionCosts
from fairlead.sim.physics.measured_leases import MeasuredLease, StartKind
from fairlead.sim.scenario import Learning, Scenario

_PLAN_S = 0.05
"""time to compute a plan, if a run did not record it"""
_BELIEVED_EARLIER_S = 0.1
"""a plan sees the speeds that arrive at its instant; the simulated instant may be a bit earlier"""


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


def measured_lease(lease: Lease) -> MeasuredLease:
    """Return the costs and the speed of a lease; the latter if it made steps."""
    kind: dict[str, StartKind] = {"start": "move", "resume": "resume", "hand-over": "hand-over"}
    speed = None
    if lease.start_s is not None and lease.end_s is not None and lease.steps > 0:
        trained_s = lease.held_s - lease.start_s - lease.end_s
        speed = lease.steps / trained_s if trained_s > 0 else None
    return MeasuredLease(
        accelerator=lease.accelerator,
        kind="first" if lease.is_first else kind[lease.began],
        start_s=lease.start_s,
        leave_s=lease.end_s,
        steps_per_s=speed,
    )


def predicted(record: RunRecord, speeds: SpeedTable, costs: TransitionCosts) -> FloatArray:
    """Return the simulated times at which the jobs of a run end, in their order.

    Leases have the starts, ends and speeds that the run measured, in order, and ``costs`` where it
    measured none. Decisions use the speeds that the server believed, or, where these were not
    recorded, those that the simulated jobs measure.
    """
    mechanism = create_mechanism(record.policy, None, record.round_s)
    leases = {
        str(i): [measured_lease(lease) for lease in job.leases]
        for i, job in enumerate(record.jobs)
    }
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
            believed=speeds,
            learning=Learning() if record.beliefs is None else None,
            measured=_measured_speeds(record.beliefs or ()),
            plan_lead_s=plan_lead_s(record.round_s, hands_over=record.hands_over),
            plan_s=_PLAN_S if record.plan_s is None else record.plan_s,
            protect_starts=True,
            parks=True,
            physics=Physics.with_costs(costs, leases),
        )
    )
    return simulated.finished_at


def _measured_speeds(beliefs: Iterable[Belief]) -> list[SpeedMeasured]:
    return [
        SpeedMeasured(
            max(belief.at_s - _BELIEVED_EARLIER_S, 0.0),
            belief.workload,
            1,
            belief.accelerator,
            belief.steps_per_s,
        )
        for belief in beliefs
    ]


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
