"""What every plan and every refill must keep, checked against the snapshot they were made from."""

import math
from collections.abc import Collection, Iterator, Sequence

from fairlead.model.arrays import IntArray
from fairlead.model.job import Job
from fairlead.model.lease import Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot


class BrokenPromiseError(AssertionError):
    """A mechanism did what none may do; the message says what, who and when."""


def require(holds: bool, problem: str, snap: Snapshot | None = None) -> None:
    """Raise BrokenPromiseError unless it holds."""
    if not holds:
        when = "" if snap is None else f" (plan from {snap.starts_at:g} s on)"
        raise BrokenPromiseError(problem + when)


def check_plan(snap: Snapshot, plan: Plan, jobs: Sequence[Job]) -> None:
    """Require that the plan can be carried out: whole gangs, one unit a device, on what is up.

    ``jobs`` are all jobs by number.
    """
    require(snap.starts_at < plan.wake_at < math.inf, f"wakes at {plan.wake_at}", snap)
    require(snap.starts_at < plan.until < math.inf, f"holds until {plan.until}", snap)
    running = _running(snap)
    stop: list[int] = plan.stop.tolist()
    require(len(set(stop)) == len(stop), "a lease is stopped twice", snap)
    require(set(stop) <= set(running), "a lease is stopped that does not run", snap)
    stays = {lease: devices for lease, devices in running.items() if lease not in stop}
    _check_starts(snap, plan.start, jobs)
    row_of = {job: row for row, job in enumerate(snap.job.tolist())}
    for placement in plan.start:
        if placement.copy == 0:
            lease = int(snap.lease[row_of[placement.job]])
            require(
                lease not in stays, f"job {placement.job} starts while it runs elsewhere", snap
            )
    _check_units([*stays.values(), *(frozenset(p.devices) for p in plan.start)], snap)


def check_refill(snap: Snapshot, idle: IntArray, more: Placements, jobs: Sequence[Job]) -> None:
    """Require that only jobs that hold nothing start, and on the idle devices only."""
    _check_starts(snap, more, jobs)
    held = set(snap.job[snap.holds[snap.holds >= 0]].tolist())
    may_use = set(idle.tolist())
    for placement in more:
        require(set(placement.devices) <= may_use, f"{placement} uses busy devices", snap)
        require(
            placement.copy > 0 or placement.job not in held,
            f"job {placement.job} is started in mid-round though it holds devices",
            snap,
        )
    _check_units([frozenset(p.devices) for p in more], snap)


def _check_starts(snap: Snapshot, start: Placements, jobs: Sequence[Job]) -> None:
    usable = set(snap.usable.tolist())
    row_of = {job: row for row, job in enumerate(snap.job.tolist())}
    speed, kind_of = snap.speed, snap.cluster.accelerator_of
    member = snap.profiles.member_speed[snap.profile]
    seen: set[tuple[int, int]] = set()
    for placement in start:
        job, copy, devices = placement.job, placement.copy, placement.devices
        require(job in row_of, f"job {job} starts, which is not there", snap)
        require((job, copy) not in seen, f"job {job} starts twice", snap)
        seen.add((job, copy))
        require(len(set(devices)) == len(devices), f"job {job} gets a device twice", snap)
        require(set(devices) <= usable, f"job {job} starts on devices that are down", snap)
        kinds = kind_of[list(devices)]
        on = {snap.cluster.accelerators[kind] for kind in kinds.tolist()}
        sizes = _sizes(jobs[job], on)
        require(len(devices) in sizes, f"job {job} gets {len(devices)} devices", snap)
        if jobs[job].gangs or len(devices) == jobs[job].gang:
            mixed = len(set(kinds.tolist())) > 1
            mine = (member if mixed else speed)[row_of[job], kinds]
            require(bool((mine > 0).all()), f"job {job} cannot run where it starts", snap)


def _sizes(job: Job, on: Collection[str]) -> Collection[int]:
    """Return how many devices a job may hold of these accelerators."""
    if job.gangs:
        return {job.gang_on(kind) for kind in on} if len(on) == 1 else ()
    return range(job.min_gang or job.gang, (job.max_gang or job.gang) + 1)


def _check_units(units: Sequence[frozenset[int]], snap: Snapshot) -> None:
    """Require that whoever shares a device shares all of its devices: one unit a device."""
    unit_on: dict[int, frozenset[int]] = {}
    for devices in units:
        for device in devices:
            require(
                unit_on.setdefault(device, devices) == devices,
                f"device {device} would be held by two units",
                snap,
            )


def _running(snap: Snapshot) -> dict[int, frozenset[int]]:
    """Return lease → devices, of all that runs."""
    held: dict[int, set[int]] = {}
    for lane, device in _cells(snap):
        if snap.holds_lease is None:
            lease = int(snap.lease[snap.holds[lane, device]])
        else:
            lease = int(snap.holds_lease[lane, device])
        if lease >= 0:  # else it still waits for the devices
            held.setdefault(lease, set()).add(device)
    return {lease: frozenset(devices) for lease, devices in held.items()}


def _cells(snap: Snapshot) -> Iterator[tuple[int, int]]:
    lane, device = (snap.holds >= 0).nonzero()
    return zip(lane.tolist(), device.tolist(), strict=True)
