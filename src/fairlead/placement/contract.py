"""Checks of plans and refills against the snapshot that they were made from."""

import math
from collections.abc import Collection, Iterator, Sequence

from fairlead.model.arrays import IntArray
from fairlead.model.job import Job
from fairlead.model.lease import Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot


class ContractViolationError(AssertionError):
    """A mechanism or engine violates its contract; the message names job, device and time."""


def require(holds: bool, problem: str, snap: Snapshot | None = None) -> None:
    """Raise ContractViolationError unless the condition holds."""
    if not holds:
        when = "" if snap is None else f" (plan for {snap.starts_at:g} s)"
        raise ContractViolationError(problem + when)


def check_plan(snap: Snapshot, plan: Plan, jobs: Sequence[Job] | None = None) -> None:
    """Require a valid plan: whole gangs, one unit per device, usable devices only.

    ``jobs`` holds all jobs by number; without it, gangs are those of the snapshot's profiles.
    """
    require(snap.starts_at < plan.wake_at < math.inf, f"wakes at {plan.wake_at}", snap)
    require(snap.starts_at < plan.until < math.inf, f"holds until {plan.until}", snap)
    running = _running(snap)
    stop: list[int] = plan.stop.tolist()
    require(len(set(stop)) == len(stop), "a lease is stopped twice", snap)
    require(set(stop) <= set(running), "a stopped lease is not running", snap)
    stays = {lease: devices for lease, devices in running.items() if lease not in stop}
    _check_starts(snap, plan.start, jobs)
    row_of = {job: row for row, job in enumerate(snap.job.tolist())}
    for placement in plan.start:
        if placement.copy == 0:
            lease = int(snap.lease[row_of[placement.job]])
            require(
                lease not in stays, f"job {placement.job} starts although it already runs", snap
            )
    _check_units([*stays.values(), *(frozenset(p.devices) for p in plan.start)], snap)


def check_refill(
    snap: Snapshot, idle: IntArray, more: Placements, jobs: Sequence[Job] | None = None
) -> None:
    """Require that only jobs without devices start, and only on idle devices."""
    _check_starts(snap, more, jobs)
    held = set(snap.job[snap.holds[snap.holds >= 0]].tolist())
    may_use = set(idle.tolist())
    for placement in more:
        require(set(placement.devices) <= may_use, f"{placement} uses busy devices", snap)
        require(
            placement.copy > 0 or placement.job not in held,
            f"job {placement.job} starts in mid-round although it holds devices",
            snap,
        )
    _check_units([frozenset(p.devices) for p in more], snap)


def _check_starts(snap: Snapshot, start: Placements, jobs: Sequence[Job] | None) -> None:
    usable = set(snap.usable.tolist())
    row_of = {job: row for row, job in enumerate(snap.job.tolist())}
    speed, accelerator_of = snap.speed, snap.cluster.accelerator_of
    member = snap.profiles.member_speed[snap.profile]
    seen: set[tuple[int, int]] = set()
    for placement in start:
        job, copy, devices = placement.job, placement.copy, placement.devices
        require(job in row_of, f"job {job} starts but is not in the snapshot", snap)
        require((job, copy) not in seen, f"job {job} starts twice", snap)
        seen.add((job, copy))
        require(len(set(devices)) == len(devices), f"job {job} gets a device twice", snap)
        require(set(devices) <= usable, f"job {job} starts on unusable devices", snap)
        columns = accelerator_of[list(devices)]
        on = {snap.cluster.accelerators[column] for column in columns.tolist()}
        described = _job_of(snap, row_of[job]) if jobs is None else jobs[job]
        sizes = _sizes(described, on)
        require(len(devices) in sizes, f"job {job} gets {len(devices)} devices", snap)
        if described.gangs or len(devices) == described.gang:
            mixed = len(set(columns.tolist())) > 1
            speeds = (member if mixed else speed)[row_of[job], columns]
            require(bool((speeds > 0).all()), f"job {job} cannot run where it starts", snap)


def _job_of(snap: Snapshot, row: int) -> Job:
    """Return the gangs of a row's job."""
    profiles, profile = snap.profiles, int(snap.profile[row])
    gang, gangs = int(profiles.gang[profile]), {}
    if profiles.gangs is not None and (profiles.gangs[profile] != gang).any():
        gangs = dict(zip(snap.cluster.accelerators, profiles.gangs[profile].tolist(), strict=True))
    least, most = (
        None if gangs or column is None else int(column[profile])
        for column in (profiles.min_gang, profiles.max_gang)
    )
    total = float(snap.total_steps[row])
    return Job(
        id=str(row), workload="", gang=gang, total_steps=total, min_gang=least, max_gang=most,
        gangs=gangs,
    )  # fmt: skip


def _sizes(job: Job, on: Collection[str]) -> Collection[int]:
    """Return the numbers of devices that a job may hold of these accelerators."""
    if job.gangs:
        return {job.gang_on(accelerator) for accelerator in on} if len(on) == 1 else ()
    return range(job.min_gang or job.gang, (job.max_gang or job.gang) + 1)


def _check_units(units: Sequence[frozenset[int]], snap: Snapshot) -> None:
    """Require one unit per device: jobs that share a device share all their devices."""
    unit_on: dict[int, frozenset[int]] = {}
    for devices in units:
        for device in devices:
            require(
                unit_on.setdefault(device, devices) == devices,
                f"device {device} is held by two units",
                snap,
            )


def _running(snap: Snapshot) -> dict[int, frozenset[int]]:
    """Return lease → devices of all running leases."""
    held: dict[int, set[int]] = {}
    for lane, device in _cells(snap):
        if snap.holds_lease is None:
            lease = int(snap.lease[snap.holds[lane, device]])
        else:
            lease = int(snap.holds_lease[lane, device])
        if lease >= 0:  # otherwise the job still waits for its devices
            held.setdefault(lease, set()).add(device)
    return {lease: frozenset(devices) for lease, devices in held.items()}


def _cells(snap: Snapshot) -> Iterator[tuple[int, int]]:
    lane, device = (snap.holds >= 0).nonzero()
    return zip(lane.tolist(), device.tolist(), strict=True)
