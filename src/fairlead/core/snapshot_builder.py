"""Builds the snapshot that planners receive."""

from collections.abc import Sequence

import numpy as np

from fairlead.core.jobs import (
    ARRIVAL,
    DEADLINE,
    FIRST_TIME_COLUMN,
    ISOLATED,
    LEASE,
    ON,
    PRIORITY,
    PROFILE,
    STEPS,
    TOTAL,
    JobState,
    JobTable,
)
from fairlead.core.leases import LeaseTable
from fairlead.core.limits import has_tenant_limits
from fairlead.core.measured.restart_costs import RestartCosts
from fairlead.core.nodes import NodeTable
from fairlead.core.tenant_usage import Usage, charge_pinned, remaining_guarantees
from fairlead.model.arrays import (
    NO_FLOATS,
    NO_INTS,
    BoolArray,
    FloatArray,
    IntArray,
    is_among,
)
from fairlead.model.lease import NO_PLACEMENTS, Placements
from fairlead.model.plan import ABSENT
from fairlead.model.profiles import Profiles
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedTable
from fairlead.model.tenants.limits import within_tenant_limits
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.weight_scope import (
    WeightScope,
    scoped_precedence,
    scoped_profiles,
    searches_as_one_job,
)
from fairlead.policies.base import mean_speed


class SnapshotBuilder:
    """Takes snapshots of the scheduler's tables."""

    def __init__(
        self,
        nodes: NodeTable,
        beliefs: SpeedTable,
        jobs: JobTable,
        leases: LeaseTable,
        restarts: RestartCosts | None,
        measured: bool,
        weight_scope: WeightScope,
        *,
        charges_idle: bool,
    ) -> None:
        self._nodes = nodes
        self._beliefs = beliefs
        self._jobs = jobs
        self._leases = leases
        self._restarts = restarts
        """costs of restarts; None for mechanisms that do not read them"""
        self._measured = measured
        self._weight_scope, self._charges_idle = weight_scope, charges_idle
        self._scoped: tuple[Profiles, bytes, list[Tenant], Profiles] | None = None
        """profiles, active jobs of each and tenants of the last call, and the scoped profiles"""
        self._last: tuple[Profiles, list[Tenant], Profiles] | None = None
        """profiles and tenants of the last call, and the profiles within tenant limits"""

    def snapshot(
        self,
        at: float,
        starts_at: float,
        waiting: Placements,
        usage: Usage,
        changes: int,
        hidden: IntArray,
        *,
        pins: bool = True,
        only_waiting: bool = False,
        among: IntArray | None = None,
    ) -> Snapshot:
        """Return active jobs and their devices, time received projected to ``starts_at``.

        ``only_waiting`` leaves out the jobs that hold devices or wait for planned ones, and
        ``among`` all but these, in ascending order.
        """
        jobs, leases, nodes = self._jobs, self._leases, self._nodes
        active, slots = jobs.active, leases.active_slots
        if among is not None:
            active = among[jobs.state[among] == JobState.ACTIVE]
        usable, up = nodes.usable, nodes.capacity
        tenants = usage.weighted_tenants(jobs.tenants)
        if pins and leases.pinned:
            held = self._pinned_by_tenant()
            has_jobs = None if self._charges_idle else self._has_jobs()
            tenants = charge_pinned(tenants, has_jobs, held, len(nodes.usable))
        if nodes.keeps_jobs(leases):
            stays, closed = nodes.pinned_jobs(leases, pins=pins)
            tenants = self._without_kept(tenants, stays)
            active = active[~np.isin(active, stays)]
            slots = slots[~np.isin(leases.job[slots], stays)]
            usable = (nodes.is_up & ~closed).nonzero()[0]
            up = np.bincount(nodes.cluster.accelerator_of[usable], minlength=len(up))
        if len(hidden):
            active = active[~np.isin(active, hidden)]
        if only_waiting:
            active = self._without_devices(active, slots, waiting)
            slots, waiting = NO_INTS, NO_PLACEMENTS
        rows, ints = jobs.numbers.take(active, axis=0), jobs.ints.take(active, axis=0)
        row_of = active.searchsorted(leases.job[slots])
        leases.credit(slots, row_of, starts_at, rows)
        if leases.leaving_count:
            self._credit_leaving(active, at, rows)
            leaving = ~leases.is_open(ints[:, LEASE])
            if not leases.simple:  # copies hold leases that are not the job's own
                leaving &= ~np.isin(active, leases.job[leases.active_slots])
            ints[leaving, ON] = ints[leaving, LEASE] = ABSENT
        holds = self._holder_rows(slots, row_of, active, waiting)
        priority = rows[:, PRIORITY]
        return Snapshot(
            at=at,
            starts_at=starts_at,
            cluster=nodes.cluster,
            capacity=up,
            usable=usable,
            tenants=tuple(tenants),
            profiles=self._within_limits(usage.weighted_profiles(self._scoped_profiles())),
            job=active,
            profile=ints[:, PROFILE],
            arrival_at=rows[:, ARRIVAL],
            total_steps=rows[:, TOTAL],
            steps=rows[:, STEPS],
            deadline_at=rows[:, DEADLINE],
            priority=priority,
            received_s=rows[:, FIRST_TIME_COLUMN:],
            on=ints[:, ON],
            lease=ints[:, LEASE],
            holds=holds,
            holds_lease=None if leases.simple else self._holder_leases(len(holds), slots),
            ids=jobs.ids,
            changes=changes,
            speeds=self._beliefs,
            isolated_elapsed_s=rows[:, ISOLATED],
            precedence=scoped_precedence(
                jobs.profiles, ints[:, PROFILE], priority, self._weight_scope
            ),
            measured=jobs.measurements(active) if self._measured else None,
            restart_s=NO_FLOATS if self._restarts is None else self._restarts.of(active),
        )

    def _credit_leaving(self, active: IntArray, at: float, rows: FloatArray) -> None:
        """Add the time that preempted leases have held so far: leaving may take rounds.

        Without it a job that leaves slowly would seem to have received nothing.
        """
        leases = self._leases
        slots = leases.leaving.nonzero()[0]
        slots = slots[is_among(leases.job[slots], active)]
        leases.credit(slots, active.searchsorted(leases.job[slots]), at, rows)

    def _without_devices(
        self, numbers: IntArray, slots: IntArray, waiting: Placements
    ) -> IntArray:
        """Return those of the jobs that hold nothing in these slots and wait for no placement."""
        jobs, leases = self._jobs, self._leases
        if leases.simple and not len(waiting) and not leases.leaving_count:
            # The slots are all leases, each of them its job's only one.
            placed = jobs.lease[numbers] != ABSENT
        else:
            holds = np.zeros(len(jobs), dtype=bool)
            holds[leases.job[slots]] = holds[waiting.job] = True
            placed = holds[numbers]
        without: IntArray = numbers[~placed]
        return without

    def _pinned_by_tenant(self) -> IntArray:
        """Return tenants → devices that its pinned leases hold."""
        jobs, leases = self._jobs, self._leases
        slots = np.array(sorted(leases.pinned), dtype=np.int64)
        tenant = jobs.profiles.tenant[jobs.ints[leases.job[slots], PROFILE]]
        held = np.bincount(tenant, leases.sizes(slots), minlength=len(jobs.tenants))
        return held.astype(np.int64)

    def _has_jobs(self) -> BoolArray:
        """Return tenants → whether it has active jobs."""
        jobs = self._jobs
        tenant = jobs.profiles.tenant[jobs.ints[jobs.active, PROFILE]]
        has_jobs: BoolArray = np.bincount(tenant, minlength=len(jobs.tenants)) > 0
        return has_jobs

    def _without_kept(self, tenants: Sequence[Tenant], stays: IntArray) -> Sequence[Tenant]:
        """Return the tenants with guarantees less the devices that these jobs keep anyway."""
        if not any(tenant.guarantee for tenant in tenants):
            return tenants
        jobs, leases, cluster = self._jobs, self._leases, self._nodes.cluster
        lane, device = (leases.holder >= 0).nonzero()
        job = leases.job[leases.holder[lane, device]]
        kept = np.isin(job, stays)
        tenant = jobs.profiles.tenant[jobs.ints[job[kept], PROFILE]]
        held = np.zeros((len(tenants), len(cluster.accelerators)))
        np.add.at(held, (tenant, cluster.accelerator_of[device[kept]]), 1.0)
        return remaining_guarantees(tenants, held, cluster.accelerators)

    def _scoped_profiles(self) -> Profiles:
        """Return the profiles with weights in their scope; the same object while possible."""
        jobs = self._jobs
        profiles = jobs.profiles
        if self._weight_scope == "cluster" and profiles.search is None:
            return profiles
        count = np.bincount(jobs.ints[jobs.active, PROFILE], minlength=len(profiles.gang))
        key, last = count.tobytes(), self._scoped
        if last is None or last[0] is not profiles or last[1:3] != (key, jobs.tenants):
            searches = searches_as_one_job(profiles, count)
            scoped = scoped_profiles(searches, count, jobs.tenants, self._weight_scope)
            self._scoped = last = profiles, key, list(jobs.tenants), scoped
        return last[3]

    def _within_limits(self, profiles: Profiles) -> Profiles:
        """Return the profiles within tenant limits; the same object while nothing changes."""
        tenants = self._jobs.tenants
        if not has_tenant_limits(tenants):
            return profiles
        if self._last is None or self._last[0] is not profiles or self._last[1] != tenants:
            limited = within_tenant_limits(profiles, tenants, self._nodes.cluster.accelerators)
            self._last = profiles, list(tenants), limited
        return self._last[2]

    def used(self, at: float, usage: Usage) -> FloatArray:
        """Return tenants → device-seconds used so far, weighted by the history's measure."""
        assert usage.history is not None
        jobs, held = self._jobs, self._leases.device_s(at)
        profiles, profile = jobs.profiles, jobs.ints[: len(jobs), PROFILE]
        if usage.history.measure == "speed":
            speed = profiles.gang_speed if profiles.member is None else profiles.member
            normal = mean_speed(speed, self._nodes.cluster.counts)
            held *= (speed / normal[:, None])[profile]
        count = len(jobs.tenants)
        return np.bincount(profiles.tenant[profile], held.sum(axis=1), count).astype(float)

    def _holder_rows(
        self, slots: IntArray, row_of: IntArray, active: IntArray, waiting: Placements
    ) -> IntArray:
        """Return lanes × devices → row of the job that holds or waits for the device."""
        row_of_slot = np.empty(len(self._leases.lease), dtype=np.int64)
        row_of_slot.fill(ABSENT)
        row_of_slot[slots] = row_of
        held: IntArray = row_of_slot[self._leases.holder]
        if not len(waiting):
            return held
        rows = active.searchsorted(waiting.job)
        if len(held) == 1:
            # All at once, unless two jobs claim one device: then fewer devices are held.
            together = held.copy()
            together[0, waiting.device] = rows if waiting.single else rows.repeat(waiting.size)
            added = np.count_nonzero(together >= 0) - np.count_nonzero(held >= 0)
            if added == len(waiting.device):
                return together
        for row, unit in zip(rows.tolist(), waiting, strict=True):
            # Packed jobs may wait for one another's devices, so each takes a separate lane.
            devices = list(unit.devices)
            lanes = np.flatnonzero((held[:, devices] < 0).all(axis=1))
            if not len(lanes):
                held = np.vstack([held, np.full_like(held[:1], ABSENT)])
            held[lanes[0] if len(lanes) else -1, devices] = row
        return held

    def _holder_leases(self, lanes: int, slots: IntArray) -> IntArray:
        """Return lanes × devices → the lease in ``slots`` that holds the device."""
        leases = self._leases
        stays = np.full(len(leases.lease), ABSENT, dtype=np.int64)
        stays[slots] = leases.lease[slots]
        held: IntArray = stays[leases.holder]
        more = np.full((lanes - len(held), held.shape[1]), ABSENT, dtype=np.int64)
        return np.vstack([held, more])
