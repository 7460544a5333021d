"""Admission: whether a job can ever run on a cluster, and the error if it cannot.

Shared by the scheduler, the server and the check of traces.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.model.job import Job, per_accelerator_gangs_error
from fairlead.model.snapshot import gangs_by_accelerator
from fairlead.model.speeds.table import SpeedTable


class Admission:
    """Checks jobs against a cluster, believed speeds and the mechanism's capabilities.

    ``permanent``: accelerators → devices that are up or may return; a job that needs more is
    rejected.
    """

    def __init__(
        self,
        cluster: Cluster,
        beliefs: SpeedTable,
        permanent: IntArray,
        capabilities: Capabilities,
    ) -> None:
        self.capabilities = capabilities
        self._cluster = cluster
        self._beliefs = beliefs
        self._permanent = permanent
        self._admitted: set[tuple[object, ...]] = set()
        """requirements of jobs that can run on the permanent devices"""

    def with_devices(self, cluster: Cluster, permanent: IntArray) -> "Admission":
        """Return the admission to another cluster, with the same speeds and capabilities."""
        return Admission(cluster, self._beliefs, permanent, self.capabilities)

    def with_speeds(self, beliefs: SpeedTable, capabilities: Capabilities) -> "Admission":
        """Return the admission to the same devices with other speeds and capabilities."""
        return Admission(self._cluster, beliefs, self._permanent, capabilities)

    def check(self, job: Job) -> None:
        """Raise InputError unless a job can run on the permanent devices."""
        needs = requirements(job)
        if needs not in self._admitted:
            self._require_runnable(job, self._permanent)
            self._admitted.add(needs)

    def check_limit(self, job: Job, limit: FloatArray) -> None:
        """Raise InputError unless a job can run while its tenant holds at most ``limit`` devices.

        ``limit``: accelerators → devices. The least gang counts, and half of packed devices.
        """
        spare = 0 if job.min_gang is None else job.gang - job.min_gang
        counted = 0.5 if self.capabilities.packs else 1.0
        devices = np.minimum(self._permanent, limit / counted + spare).astype(np.int64)
        if self._can_run(job, devices):
            return
        able = self.speeds(job) > 0
        if self.capabilities.mixed_gangs:
            able |= self.member_speeds(job) > 0
        most = np.minimum(self._permanent, limit).tolist()
        may_hold = dict(zip(self._cluster.accelerators, most, strict=True))
        held = ", ".join(f"{may_hold[name]:g} {name}" for name in self._names(able))
        gangs = sorted({job.gang_on(name) - spare for name in self._names(able)})
        raise InputError(
            f"job {job.id!r} needs {' or '.join(map(str, gangs))}"
            f" {'device' if gangs == [1] else 'devices'} at once, tenant {job.tenant!r} may hold"
            f" {held}",
            fix="raise its limits",
            field="tenant",
        )

    def check_on_all_nodes(self, job: Job) -> None:
        """Raise InputError unless a job can run once removed nodes are replaced by equal ones."""
        self._require_runnable(job, self._cluster.counts)

    def admits(self, job: Job) -> bool:
        """Return whether a job can run on the permanent devices."""
        try:
            self.check(job)
        except InputError:
            return False
        return True

    def check_device_counts(self, counts: Mapping[str, int]) -> None:
        """Raise InputError for the first accelerator with fewer permanent devices than this."""
        available = dict(zip(self._cluster.accelerators, self._permanent.tolist(), strict=True))
        for accelerator, count in counts.items():
            if count > available.get(accelerator, 0):
                raise InputError(
                    f"{accelerator}={count}: the cluster has {available.get(accelerator, 0)}"
                    f" {accelerator}",
                    fix=f"expected some of {', '.join(available)}, with numbers that fit",
                    field="accelerators",
                )

    def check_declared_speeds(self, job: Job) -> None:
        """Raise InputError if a job declares speeds for none of the cluster's accelerators."""
        names = self._cluster.accelerators
        if job.declared_speeds and not any(name in job.declared_speeds for name in names):
            declared = ", ".join(job.declared_speeds)
            raise InputError(
                f"none on an accelerator of the cluster: {declared}",
                fix=f"expected some of {', '.join(names)}",
                field="speeds",
            )

    def speeds(self, job: Job) -> FloatArray:
        """Return accelerators → believed speed; 0 for a workload that the speeds do not have."""
        try:
            return self._usable_speeds(job, self._cluster.counts)
        except InputError:
            return np.zeros(len(self._cluster.accelerators))

    def member_speeds(self, job: Job) -> FloatArray:
        """Return accelerators → believed speed of a gang whose slowest member is on it."""
        accelerators = self._cluster.accelerators
        workload = self._beliefs.workload_of(job)
        members = [self._beliefs.member_speed(workload, job.gang, name) for name in accelerators]
        speed = self._beliefs.with_declared(job, accelerators, np.array(members))
        return np.where(self._usable_accelerators(job), speed, 0.0)

    def workload_of(self, job: Job) -> str:
        """Return the workload by which a job's speeds are looked up."""
        return self._beliefs.workload_of(job)

    def best_speed(self, job: Job) -> float:
        """Return the believed speed of a job where it runs fastest."""
        speed = self.speeds(job)
        if self.capabilities.mixed_gangs:
            speed = np.maximum(speed, self.member_speeds(job))
        return float(speed.max())

    def _usable_speeds(self, job: Job, counts: IntArray) -> FloatArray:
        """Return accelerators → believed speed where the job may and can run, else 0."""
        speed = self._beliefs.row_of(job, self._cluster.accelerators)
        enough = counts >= gangs_by_accelerator([job], self._cluster.accelerators)[0]
        return np.where(self._usable_accelerators(job) & enough, speed, 0.0)

    def _usable_accelerators(self, job: Job) -> BoolArray:
        """Return accelerators → the job may use it and it has enough memory."""
        usable = self._requested_accelerators(job)
        if job.memory_gib is not None:
            usable &= self._cluster.memory_gib >= job.memory_gib
        return usable

    def _requested_accelerators(self, job: Job) -> BoolArray:
        """Return accelerators → the job may use it."""
        accelerators = self._cluster.accelerators
        if job.accelerators is None:
            return np.ones(len(accelerators), dtype=bool)
        return np.isin(accelerators, job.accelerators)

    def _can_run(self, job: Job, devices: IntArray) -> bool:
        if self._usable_speeds(job, devices).any():
            return True
        if not self.capabilities.mixed_gangs:
            return False
        return int(devices[self.member_speeds(job) > 0.0].sum()) >= job.gang

    def _require_runnable(self, job: Job, devices: IntArray) -> None:
        """Raise InputError unless a job can run on this number of devices per accelerator."""
        if job.gangs and not self.capabilities.per_accelerator_gangs:
            raise per_accelerator_gangs_error(job.id)
        if not self._can_run(job, devices):
            raise self._why_unrunnable(job, devices)

    def _why_unrunnable(self, job: Job, devices: IntArray) -> InputError:
        """Return the error for the first field that keeps a job from ever running."""
        counts = dict(zip(self._cluster.accelerators, devices.tolist(), strict=True))
        available = [name for name, count in counts.items() if count]
        requested = self._requested_accelerators(job) & (devices > 0)
        if not requested.any():
            named = f": {', '.join(job.accelerators)}" if job.accelerators else ""
            return InputError(
                f"job {job.id!r} may use no accelerator of the cluster{named}",
                fix=f"expected one of {', '.join(available)}",
                field="accelerators",
            )
        able = requested & (self._speeds_by_gang(job) > 0)
        if not able.any():
            return InputError(
                f"speed 0 on {', '.join(_gangs(job, self._names(requested)))} for"
                f" {job.workload!r} with gang {job.gang}",
                fix="change the gang, the accelerators or the cluster",
                field="workload",
            )
        memory_gib = self._cluster.memory_gib[able]
        if job.memory_gib is not None and (memory_gib < job.memory_gib).all():
            return InputError(
                f"job {job.id!r} needs {job.memory_gib:g} GiB of a device, the largest it can use"
                f" has {float(memory_gib.max()):g} GiB",
                fix="lower memory_gib or allow accelerators with more memory",
                field="memory_gib",
            )
        return self._too_large(job, counts, self._names(able & self._usable_accelerators(job)))

    def _too_large(self, job: Job, counts: Mapping[str, int], able: Sequence[str]) -> InputError:
        """Return the error for a gang that exceeds the devices of every accelerator."""
        if job.gangs:
            needed = " or ".join(f"{job.gang_on(name)} {name}" for name in able)
            there = ", ".join(f"{counts[name]} {name}" for name in able)
            return InputError(
                f"job {job.id!r} needs {needed}, the cluster has {there}",
                fix="lower the numbers or add devices",
                field="accelerators",
            )
        mixed = self.capabilities.mixed_gangs
        devices = "device" if job.gang == 1 else "devices"
        total = sum(counts[name] for name in able) if mixed else max(counts[name] for name in able)
        return InputError(
            f"job {job.id!r} needs {job.gang} {devices}{'' if mixed else ' of one accelerator'},"
            f" the cluster has {total} that it can use",
            fix="lower the gang or add devices",
            field="gang",
        )

    def _speeds_by_gang(self, job: Job) -> FloatArray:
        """Return accelerators → believed speed of the gang, however many devices there are."""
        if self.capabilities.mixed_gangs:
            names = self._cluster.accelerators
            workload = self._beliefs.workload_of(job)
            return np.array([self._beliefs.member_speed(workload, job.gang, a) for a in names])
        return self._beliefs.row_of(job, self._cluster.accelerators)

    def _names(self, accelerators: BoolArray) -> list[str]:
        return [self._cluster.accelerators[j] for j in accelerators.nonzero()[0].tolist()]


def _gangs(job: Job, accelerators: Iterable[str]) -> list[str]:
    """Return the accelerators, with the number of devices where it is not the job's gang."""
    return [f"{job.gangs[a]} {a}" if a in job.gangs else a for a in accelerators]


def requirements(job: Job) -> tuple[object, ...]:
    """Return the fields that determine where a job can run."""
    gangs = tuple(job.gangs.items())
    return (job.workload, job.gang, gangs, job.accelerators, job.memory_gib)
