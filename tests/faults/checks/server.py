"""Invariants of a server after its start, in its answers, and at the end of a run."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.faults.machine.machine import Process
from tests.faults.record import RunRecord

from fairlead.core.jobs import JobState
from fairlead.engines.keeper.lease_dir import is_alive
from fairlead.model import events as ev

_REAPED_S = 1.0
"""seconds within which a server reaps its child"""
_MAX_BATCH = 8
"""events in one batch, after which a state may be due"""


class ServerChecks:
    """Checks a server's state after a restart and its answers to renewals."""

    def __init__(self, record: RunRecord) -> None:
        self._record, self._require = record, record.require
        self._unreached: set[str] = set()

    def settled(self) -> None:
        """Record that all events so far are persisted."""
        for truth in self._record.truth.values():
            truth.persisted = truth.counted
        self._record.taken_persisted = dict(self._record.taken)
        self._record.down_persisted = set(self._record.down)

    # -- the engine's reports on nodes ----------------------------------------------------------

    def lost(self, node: str) -> list[ev.Event]:
        """Record that the scheduler has handled the report of an unreachable node."""
        if node in self._unreached:
            self._record.down.add(node)
        return []

    def unreached(self, node: str) -> None:
        """Record that the engine reports a node as unreachable."""
        self._unreached.add(node)

    def reached(self, node: str) -> None:
        """Record that the engine reports a node as reachable again."""
        self._unreached.discard(node)
        self._record.down.discard(node)
        self._record.down_persisted.discard(node)

    def found(self, node: str) -> None:
        """Record that the engine reports a node as present and reachable."""
        self._record.missing.discard(node)
        self.reached(node)

    def missed(self, nodes: Iterable[str]) -> list[ev.Event]:
        """Record the nodes missing from the inventory."""
        self._record.missing.update(nodes)
        return []

    def knows_taken(self, live: Any, taken: Mapping[str, tuple[int, ...]]) -> None:
        """Require that a server knows the taken devices."""
        for node, numbers in taken.items():
            known = live.scheduler.nodes.taken_on(node)
            self._require(known == numbers, f"{numbers} of {node} are taken, not {known}")

    def kept_policy(self, live: Any) -> None:
        """Require that a live change of the policy outlives a start with the same settings."""
        if self._record.live_policy is None:
            return
        settings, config = self._record.live_policy
        if settings != live.config.start_settings:
            self._record.live_policy = None  # overruled
        else:
            self._require(live.policy.config.name == config, "a live policy change was lost")

    def adopted(self, live: Any, root: Path, ended: set[int]) -> None:
        """Require that a started server has removed the files of earlier ended leases.

        ``ended`` are leases that ended during the start.
        """
        for directory in root.iterdir():
            lease = int(directory.name)
            known = lease in live.leases or lease in ended or is_alive(directory)
            self._require(known, f"directory of ended lease {directory.name} was not removed")

    def rebuilt(self, live: Any) -> None:
        """Check a server's state after a restart."""
        jobs = live.scheduler.jobs
        for job_id, truth in self._record.truth.items():
            known = job_id in jobs.number
            self._require(known, f"{job_id} has run but is lost")
            if known:
                truth.counted = float(jobs.saved_steps[jobs.number[job_id]])
                good = truth.persisted <= truth.counted
                self._require(good, f"{job_id} fell back to {truth.counted} steps")
        for job_id in sorted(self._record.acknowledged):
            known = job_id in jobs.number and job_id in live.specs
            self._require(known, f"{job_id} was acknowledged but is lost")
            if not known:
                return
            state = jobs.state[jobs.number[job_id]]
            if job_id in self._record.cancelled:
                self._require(state == JobState.CANCELLED, f"{job_id} is no longer cancelled")
            if job_id in self._record.held:
                self._require(state != JobState.ACTIVE, f"{job_id} is no longer suspended")
        down = {live.scheduler.cluster.nodes[node].id for node in live.scheduler.nodes.down}
        drained = self._record.drained - self._record.may_be_removed
        kept = drained <= live.nodes.drained
        self._require(kept, f"of {drained} only {live.nodes.drained} are drained")
        self._require(drained <= down, f"{drained - down} are no longer drained")
        lost = self._record.down_persisted - self._record.may_be_removed - down
        self._require(not lost, f"{lost} were lost before a restart but are used again")
        self._record.down = set(self._record.down_persisted)
        nodes = live.scheduler.nodes
        cordoned = {live.scheduler.cluster.nodes[node].id for node in nodes.cordoned}
        free = self._record.cordoned - self._record.may_be_removed - cordoned
        self._require(not free, f"{free} are no longer cordoned")
        removed = {live.scheduler.cluster.nodes[node].id for node in nodes.removed}
        back = self._record.removed - removed
        self._require(not back, f"{back} were removed but are back")
        taken = {node.id: nodes.taken_on(node.id) for node in nodes.cluster.nodes}
        expected = (
            {node: had.get(node, ()) for node in taken}
            for had in (self._record.taken_persisted, self._record.taken)
        )
        known = any(taken == devices for devices in expected)
        self._require(known, f"taken devices after a restart: {taken}")
        self._record.taken = taken
        weights = {tenant.id: tenant.weight for tenant in jobs.tenants}
        for tenant, weight in self._record.weights.items():
            self._require(weights.get(tenant) == weight, f"tenant {tenant} lost its weight")

    def nothing_left(self, root: Path, allowed: set[int], keepers: Iterable[Process]) -> None:
        """Require that ended leases have left no directories and no unreaped keepers.

        ``allowed`` are leases that may still have a directory.
        """
        for directory in root.iterdir():
            good = int(directory.name) in allowed
            self._require(good, f"directory of lease {directory.name} was not removed")
        for keeper in keepers:
            late = self._record.now() - keeper.ended_at > _REAPED_S
            reaped = keeper.alive or keeper.reaped or not late
            self._require(reaped, f"{keeper.name} is dead but not reaped")

    def ended(self, live: Any, nodes: set[str]) -> None:
        """Require that every job has ended and every node is known."""
        known = {node.id for node in live.scheduler.cluster.nodes}
        self._require(nodes <= known, f"unknown nodes of the engine: {nodes - known}")
        jobs = live.scheduler.jobs
        for job_id, number in jobs.number.items():
            state = JobState(int(jobs.state[number]))
            good = {JobState.FINISHED}
            if live.specs[job_id].retries < 100:
                good.add(JobState.FAILED)
            if job_id in self._record.may_be_cancelled:
                good.add(JobState.CANCELLED)
            if job_id in self._record.cancelled:
                good = {JobState.CANCELLED}
            self._require(state in good, f"{job_id} never ended: {state.name}")

    def all_used(self, live: Any) -> bool:
        """Return whether every node that was not removed is used."""
        down = {live.scheduler.cluster.nodes[node].id for node in live.scheduler.nodes.down}
        return down <= self._record.may_be_removed and not live.scheduler.nodes.cordoned

    def log_is_short(self, store: Any, events_per_state: int) -> None:
        """Require that saved states replace events, so that no restart replays many."""
        state = store.load_state()
        included = 0 if state is None else state[0]
        # Reading raises an error if the log begins with any other event than the next one.
        kept = list(store.load_events(included))
        self._require(
            not kept or kept[0].seq == included + 1, "the log does not begin after the saved state"
        )
        limit = events_per_state + _MAX_BATCH
        self._require(len(kept) < limit, f"{len(kept)} events, a state is due every {limit}")

    def took_over(self, live: Any) -> None:
        """Require that the leases of a started server are those of the core."""
        scheduler = live.scheduler
        leases, end = scheduler.leases, scheduler.round_end_at
        slots = leases.open.tolist()
        known = {int(leases.lease[slot]): slot for slot in slots}
        self._require(set(live.leases) == set(known), f"leases {set(live.leases)} of {set(known)}")
        for number, lease in live.leases.items():
            job = scheduler.jobs.number[lease.job]
            slot = known.get(number, 0)
            good = (
                job == leases.job[slot]
                and lease.ranks == (leases.holder == slot).any(axis=0).sum()
                and lease.until == (math.inf if end is None else end)
                and lease.leaving == leases.leaving[slot]
            )
            self._require(good, f"wrong lease {number} after a restart: {lease}")

    def renewed(
        self, live: Any, number: int, body: dict[str, object], answer: dict[str, object] | None
    ) -> None:
        """Check the effect of a renewal and its answer."""
        lease = live.leases.get(number)
        if lease is not None:
            known = lease.steps >= float(str(body["steps"]))
            self._require(known, f"lease {number} is at {lease.steps} steps but sent {body}")
        if answer is None or answer["leave"] or lease is None:
            self._require((answer is None) == (lease is None), f"lease {number} got {answer}")
            return
        valid_s = float(str(answer["valid_s"]))
        left_s = lease.until - live.clock.now()
        good = 0 <= valid_s <= max(left_s, 0.0) + 1e-6 and (valid_s > 0 or left_s <= 1e-6)
        self._require(good, f"lease {number} has {left_s} s left but got {valid_s} s")
