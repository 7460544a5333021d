"""What a trace asks of a cluster, in a few numbers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from fairlead.files.traces.workload_sampling import reference_accelerator
from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedTable


@dataclass(frozen=True, slots=True)
class Summary:
    """A trace in numbers; None where speeds or the cluster are needed and not given."""

    jobs: int
    span_h: float
    """Hours from the first arrival to the last."""
    gangs: dict[int, int]
    """gang → jobs"""
    tenants: dict[str, int]
    """tenant → jobs"""
    workloads: int
    with_deadline: int
    reference: str | None = None
    device_h: float | None = None
    """Device-hours that all jobs take on the reference accelerator."""
    reference_devices: float | None = None
    """The cluster's devices counted in reference devices, at the trace's mix of workloads."""
    drain_h: float | None = None
    """Hours that the whole cluster needs for the device-hours, were all there at once."""
    load: float | None = None
    """Device-hours asked for over those there from the first arrival to the last."""

    def as_json(self) -> dict[str, object]:
        """Return the members as JSON has them."""
        return {**asdict(self), "gangs": {str(gang): n for gang, n in self.gangs.items()}}

    def as_text(self) -> str:
        """Return the numbers for people, one a line."""
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
    """Return the numbers of a trace; its load needs speeds and a cluster that can run it."""
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
    asked = device_h[reference]
    there = drain_h = load = None
    if cluster is not None:
        counts = cluster.count_by_name()
        there = sum(count * asked / device_h[a] for a, count in counts.items() if device_h[a])
        drain_h = asked / there if there else None
        load = drain_h / span_h if drain_h is not None and span_h else None
    return Summary(
        span_h=span_h,
        reference=reference,
        device_h=asked,
        reference_devices=there,
        drain_h=drain_h,
        load=load,
        **counted,  # type: ignore[arg-type]  # as counted above
    )


def _device_h(job: Job, speeds: SpeedTable, accelerator: str, reference: str) -> float:
    """Return the device-hours of a job on an accelerator.

    One that does not run there counts as on the reference, else where it is fastest, so that
    a single such job does not make the accelerator worthless.
    """
    for choice in (accelerator, reference):
        gang = job.gang_on(choice)
        per_s = speeds.speed(job.workload, (choice,) * gang)
        if per_s > 0:
            return gang * job.total_steps / per_s / 3600
    speed = {a: speeds.speed(job.workload, (a,) * job.gang_on(a)) for a in speeds.accelerators}
    best = max(speed, key=speed.__getitem__)
    return job.gang_on(best) * job.total_steps / speed[best] / 3600 if speed[best] else 0.0
