"""Registry of open leases: answers renewals and reports progress."""

import math
from dataclasses import replace

import numpy as np

from fairlead.core.queries import Queries
from fairlead.live.clock import Clock
from fairlead.live.leases.claims import ClaimChecker
from fairlead.live.leases.open_leases import OpenLease, RenewalLoad
from fairlead.live.leases.renewal import Renewal, RenewalAnswer
from fairlead.live.leases.reported_speeds import Company
from fairlead.live.scheduling_config import SchedulingConfig
from fairlead.model import events as ev


class LeaseRegistry:
    """All open leases, by number."""

    def __init__(self, queries: Queries, clock: Clock, checker: ClaimChecker) -> None:
        self._queries, self._clock, self._checker = queries, clock, checker
        self.open: dict[int, OpenLease] = {}
        self.renewing_jobs: set[str] = set()
        """jobs that have renewed a lease, so that they use the library"""
        self._load = RenewalLoad()

    def add(self, lease: OpenLease) -> None:
        """Add a lease whose processes are about to start, or run already."""
        lease.claims = self._checker.claims_of(lease.number, lease.job)
        if lease.copy:
            limits = lease.claims.limits
            lease.claims.limits = replace(limits, steps=lease.max_steps, saved_steps=0.0)
        self.open[lease.number] = lease
        self._load.members += lease.ranks

    def recover(self, until: float | None) -> None:
        """Add the leases that an earlier server left open; their round ends at ``until``."""
        end = math.inf if until is None else until
        for lease in self._queries.open_leases():
            opened = OpenLease(lease.number, lease.job_id, lease.devices, end, lease.leaving)
            opened.copy, opened.max_steps = lease.copy, lease.max_steps
            self.add(opened)

    def use_config(self, config: SchedulingConfig) -> None:
        """Compare the claims of all leases with the speeds of another config."""
        self._checker.use_config(config)
        for lease in self.open.values():
            self._checker.renew_limits(lease.claims)

    def close(self, lease: int) -> OpenLease | None:
        """Remove a lease, so that its members must leave; return None if it was not open."""
        closed = self.open.pop(lease, None)
        if closed is not None:
            self._load.members -= closed.ranks
        return closed

    def answer_renewal(self, lease: int, renewal: Renewal) -> RenewalAnswer | None:
        """Answer a member's renewal; None if the lease has ended."""
        opened = self.open.get(lease)
        if opened is None:
            return None
        self.renewing_jobs.add(opened.job)
        self._load.leaving = self._queries.leaving_count
        company = self._company(lease) if self._queries.has_packed else None
        return opened.renew(self._clock.now(), renewal, self._load, company)

    def _company(self, lease: int) -> Company:
        """Return the leases that share the devices of a lease."""
        shared = self._queries.shared_devices(lease)
        partners = () if shared is None else shared.leases
        opened = [self.open.get(partner) for partner in partners]
        return Company(
            partners,
            all(p is not None and p.first_step_at is not None and not p.leaving for p in opened),
        )

    def record_printed_steps(self, lease: int, steps: float) -> None:
        """Record the progress that a job without the library prints."""
        if lease in self.open:
            self.open[lease].record_steps(self._clock.now(), steps)

    def progress_events(self, at: float) -> list[ev.Event]:
        """Return the reported steps of all leases, as one event."""
        reported = [lease for lease in self.open.values() if lease.steps > 0]
        if not reported:
            return []
        numbers = np.array([lease.number for lease in reported], dtype=np.int64)
        return [ev.Progress(at, numbers, np.array([lease.steps for lease in reported]))]
