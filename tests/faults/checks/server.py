"""What must hold of a server when it has started, answers, and when all is over."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.faults.machine.machine import Process
from tests.faults.record import Record

from fairlead.core.jobs import JobState
from fairlead.engines.keeper.lease_dir import is_alive
from fairlead.model import events as ev

_REAPED_S = 1.0
"""in which a server takes note of the end of its child"""
_AT_ONCE = 8
"""events that may be written together, after the last of which a state is due"""


class ServerChecks:
    """Looks at what a server knows after a restart, and at what it tells members of leases."""

    def __init__(self, record: Record) -> None:
        self._record, self._require = record, record.require
        self._unreached: set[str] = set()

    def settled(self) -> None:
        """Note that the store holds all that was handled so far."""
        for truth in self._record.truth.values():
            truth.written = truth.counted
        self._record.taken_written = dict(self._record.taken)
        self._record.down_written = set(self._record.down)

    # -- what the engine says of nodes, and when the scheduler takes it in ----------------------

    def lost(self, node: str) -> list[ev.Event]:
        """Note that the scheduler knows of a node that the engine does not reach."""
        if node in self._unreached:
            self._record.down.add(node)
        return []

    def unreached(self, node: str) -> None:
        """Note that the engine says that it does not reach a node."""
        self._unreached.add(node)

    def reached(self, node: str) -> None:
        """Note that the engine says that it reaches a node again."""
        self._unreached.discard(node)
        self._record.down.discard(node)
        self._record.down_written.discard(node)

    def found(self, node: str) -> None:
        """Note that the engine says that it has a node, which it reaches."""
        self._record.missing.discard(node)
        self.reached(node)

    def missed(self, nodes: Iterable[str]) -> list[ev.Event]:
        """Note which nodes the engine does not have."""
        self._record.missing.update(nodes)
        return []

    def heard(self, live: Any, taken: Mapping[str, tuple[int, ...]]) -> None:
        """Require that a server knows which devices others hold."""
        for node, numbers in taken.items():
            known = live.scheduler.nodes.taken_on(node)
            self._require(known == numbers, f"others hold {numbers} of {node}, not {known}")

    def adopted(self, live: Any, root: Path, ended: set[int]) -> None:
        """Require that a server that has started keeps nothing of leases that were over before.

        Some may have ended meanwhile.
        """
        for directory in root.iterdir():
            lease = int(directory.name)
            known = lease in live.leases or lease in ended or is_alive(directory)
            self._require(known, f"{directory.name} is over, and was not cleared away")

    def rebuilt(self, live: Any) -> None:
        """Look at what a server knows after a restart."""
        jobs = live.scheduler.jobs
        for job_id, truth in self._record.truth.items():
            known = job_id in jobs.number
            self._require(known, f"{job_id} has run and is lost")
            if known:
                truth.counted = float(jobs.saved_steps[jobs.number[job_id]])
                good = truth.written <= truth.counted
                self._require(good, f"{job_id} fell back to {truth.counted} steps")
        for job_id in sorted(self._record.acknowledged):
            known = job_id in jobs.number and job_id in live.specs
            self._require(known, f"{job_id} was acknowledged and is lost")
            if not known:
                return
            state = jobs.state[jobs.number[job_id]]
            if job_id in self._record.cancelled:
                self._require(state == JobState.CANCELLED, f"{job_id} is not cancelled any more")
            if job_id in self._record.held:
                self._require(state != JobState.ACTIVE, f"{job_id} is not held any more")
        down = {live.scheduler.cluster.nodes[node].id for node in live.scheduler.nodes.down}
        drained = self._record.drained - self._record.may_be_removed
        kept = drained <= live.nodes.drained
        self._require(kept, f"of {drained} only {live.nodes.drained} are drained")
        self._require(drained <= down, f"{drained - down} are not drained any more")
        lost = self._record.down_written - self._record.may_be_removed - down
        self._require(not lost, f"{lost} were lost before a restart and are used again")
        self._record.down = set(self._record.down_written)
        nodes = live.scheduler.nodes
        cordoned = {live.scheduler.cluster.nodes[node].id for node in nodes.cordoned}
        free = self._record.cordoned - self._record.may_be_removed - cordoned
        self._require(not free, f"{free} are not cordoned any more")
        removed = {live.scheduler.cluster.nodes[node].id for node in nodes.removed}
        back = self._record.removed - removed
        self._require(not back, f"{back} were removed and are there again")
        taken = {node.id: nodes.taken_on(node.id) for node in nodes.cluster.nodes}
        told = (
            {node: had.get(node, ()) for node in taken}
            for had in (self._record.taken_written, self._record.taken)
        )
        self._require(taken in told, f"others hold {taken} after a restart")
        self._record.taken = taken
        weights = {tenant.id: tenant.weight for tenant in jobs.tenants}
        for tenant, weight in self._record.weights.items():
            self._require(weights.get(tenant) == weight, f"tenant {tenant} lost its weight")

    def nothing_left(self, root: Path, there: set[int], keepers: Iterable[Process]) -> None:
        """Require that nothing is left of leases that are over, whoever has started them.

        Of some there may be something yet.
        """
        for directory in root.iterdir():
            good = int(directory.name) in there
            self._require(good, f"{directory.name} was not cleared away")
        for keeper in keepers:
            late = self._record.now() - keeper.ended_at > _REAPED_S
            gone = keeper.alive or keeper.reaped or not late
            self._require(gone, f"{keeper.name} is dead, and nobody has taken note")

    def ended(self, live: Any, there: set[str]) -> None:
        """Require that every job has come to its end, and that every node is known."""
        known = {node.id for node in live.scheduler.cluster.nodes}
        self._require(there <= known, f"of the engine's nodes {there - known} are not known")
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
            self._require(state in good, f"{job_id} never came to its end: {state.name}")

    def all_used(self, live: Any) -> bool:
        """Tell whether every node that was not given up for good is used."""
        down = {live.scheduler.cluster.nodes[node].id for node in live.scheduler.nodes.down}
        return down <= self._record.may_be_removed and not live.scheduler.nodes.cordoned

    def log_is_short(self, store: Any, events_per_state: int) -> None:
        """Require that states take the place of events, so that no restart replays many."""
        state, kept = store.load_state(), list(store.load_events(0))
        included = bool(state and kept) and kept[0].seq <= state[0]
        self._require(not included, "events are kept that a state includes")
        most = events_per_state + _AT_ONCE
        self._require(len(kept) < most, f"{len(kept)} events, a state is due every {most}")

    def took_over(self, live: Any) -> None:
        """Look at the leases of a server that has just started: they are those of the core."""
        scheduler = live.scheduler
        leases, end = scheduler.leases, scheduler.round_end_at
        slots = leases.open.tolist()
        known = {int(leases.lease[slot]): slot for slot in slots}
        self._require(set(live.leases) == set(known), f"leases {set(live.leases)} of {set(known)}")
        for number, found in live.leases.items():
            job = scheduler.jobs.number[found.job]
            slot = known.get(number, 0)
            good = (
                job == leases.job[slot]
                and found.ranks == (leases.holder == slot).any(axis=0).sum()
                and found.until == (math.inf if end is None else end)
                and found.leaving == leases.leaving[slot]
            )
            self._require(good, f"after a restart lease {number} is taken for {found}")

    def renewed(
        self, live: Any, lease: int, told: dict[str, object], answer: dict[str, object] | None
    ) -> None:
        """Look at what the server makes of a renewal, and what it answers."""
        found = live.leases.get(lease)
        if found is not None:
            known = found.steps >= float(str(told["steps"]))
            self._require(known, f"lease {lease} is at {found.steps} steps, but told {told}")
        if answer is None or answer["leave"] or found is None:
            self._require((answer is None) == (found is None), f"lease {lease} is told {answer}")
            return
        valid_s = float(str(answer["valid_s"]))
        left_s = found.until - live.clock.now()
        good = 0 <= valid_s <= max(left_s, 0.0) + 1e-6 and (valid_s > 0 or left_s <= 1e-6)
        self._require(good, f"lease {lease} has {left_s} s left and is told {valid_s}")
