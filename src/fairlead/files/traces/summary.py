"""Summary of a trace: jobs, device-hours and load."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from fairlead.files.traces.workload_sampling import reference_accelerator
from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedTable


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of a trace; None if they need speeds or a cluster that are missing."""

    jobs: int
    span_h: float
    """hours from the first arrival to the last"""
    gangs: dict[int, int]
    """gang → jobs"""
    tenants: dict[str, int]
    """tenant → jobs"""
    workloads: int
    with_deadline: int
    reference: str | None = None
    device_h: float | None = None
    """device-hours of all jobs on the reference accelerator"""
    reference_devices: float | None = None
    """the cluster's devices counted in reference devices, for the trace's mix of workloads"""
    drain_h: float | None = None
    """hours in which the whole cluster could do all jobs if they arrived at once"""
    load: float | None = None
    """requested over available device-hours between the first arrival and the last"""

    def as_json(self) -> dict[str, object]:
        """Return the figures as a JSON object."""
        return {**asdict(self), "gangs": {str(gang): n for gang, n in self.gangs.items()}}

    def as_text(self) -> str:
        """Return the figures as text, one per line."""
        tenants = [f"{tenant}: {n}" for tenant, n in self.tenants.items()]
        more = f", … ({len(tenants)})" if len(tenants) > 8 else ""
        rows = [
            ("jobs", str(self.jobs)),
            ("arrivals", f"over {self.span_h:.2f} h"),
            ("gangs", ", ".join(f"{gang}: {n}" for gang, n in self.gangs.items())),
            ("tenants", ", ".join(tenants[:8]) + more),
            ("workloads", str(self.workloads)),
        ]
        if self.with_deadline:
            rows.append(("deadlines", str(self.with_deadline)))
        if self.device_h is not None:
            rows.append(("work", f"{self.device_h:.1f} device-hours on {self.reference}"))
        if self.drain_h is not None:
            held = f"{self.reference_devices:.1f} {self.reference}"
            rows.append(("cluster", f"worth {held}, so about {self.drain_h:.1f} h of work"))
        if self.load is not None:
            rows.append(("load", f"{self.load:.0%} of the cluster while jobs arrive"))
        return "".join(f"{label:<10} {text}\n" for label, text in rows)


def summarise(
    jobs: Sequence[Job], speeds: SpeedTable | None = None, cluster: Cluster | None = None
) -> Summary:
    """Return the figures of a trace; the load needs speeds and a cluster that can run it."""
    arrivals = [job.arrival_at for job in jobs]
    span_h = (max(arrivals) - min(arrivals)) / 3600
    counted = {
        "jobs": len(jobs),
        "gangs": dict(sorted(Counter(job.gang for job in jobs).items())),
        "tenants": dict(sorted(Counter(job.tenant for job in jobs).items())),
        "workloads": len({job.workload for job in jobs}),
        "with_deadline": sum(job.deadline_s is not None for job in jobs),
    }
    if speeds is None:
        return Summary(span_h=span_h, **counted)  # type: ignore[arg-type]  # as counted above
    reference = reference_accelerator(speeds)
    device_h = dict.fromkeys((reference, *(cluster.accelerators if cluster else ())), 0.0)
    for job in jobs:
        for accelerator in device_h:
            device_h[accelerator] += _device_h(job, speeds, accelerator, reference)
    requested = device_h[reference]
    available = drain_h = load = None
    if cluster is not None:
        counts = cluster.count_by_name()
        available = sum(
            count * requested / device_h[a] for a, count in counts.items() if device_h[a]
        )
        drain_h = requested / available if available else None
        load = drain_h / span_h if drain_h is not None and span_h else None
    return Summary(
        span_h=span_h,
        reference=reference,
        device_h=requested,
        reference_devices=available,
        drain_h=drain_h,
        load=load,
        **counted,  # type: ignore[arg-type]  # as counted above
    )


def _device_h(job: Job, speeds: SpeedTable, accelerator: str, reference: str) -> float:
    """Return the device-hours of a job on an accelerator.

    A job that does not run there counts as on the reference, otherwise as on its fastest
    accelerator, so that a single such job does not make the accelerator worthless.
    """
    for choice in (accelerator, reference):
        gang = job.gang_on(choice)
        per_s = speeds.speed(job.workload, (choice,) * gang)
        if per_s > 0:
            return gang * job.total_steps / per_s / 3600
    speed = {a: speeds.speed(job.workload, (a,) * job.gang_on(a)) for a in speeds.accelerators}
    best = max(speed, key=speed.__getitem__)
    return job.gang_on(best) * job.total_steps / speed[best] / 3600 if speed[best] else 0.0
