"""Rounds that realise time shares, shared by the mechanisms for jobs, units and tenants."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from fairlead.mechanisms._gangs.reservation import reserve_for_long_gangs
from fairlead.mechanisms._rounds.candidates import CandidateEntries
from fairlead.mechanisms._rounds.deficits import SHARE, Account
from fairlead.mechanisms._rounds.knapsack import has_few_states
from fairlead.mechanisms._rounds.selection import RoundSelection
from fairlead.mechanisms._rounds.turns import (
    RestartOption,
    check_restart_s,
    in_rounds,
    turn_of_all,
    turns_of_jobs,
)
from fairlead.mechanisms._rounds.urgency import (
    full_time_first,
    progress_owed,
    relative_speed,
    shortest_first,
    urgent_entries,
)
from fairlead.mechanisms.base import RealisesPolicy
from fairlead.model.arrays import NO_INTS, BoolArray, FloatArray, IntArray, is_among
from fairlead.model.capabilities import Capabilities, capabilities_of
from fairlead.model.lease import NO_PLACEMENTS, Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.placement import plan_moves
from fairlead.policies.base import Policy, ValuesDevices, WarmStart
from fairlead.policies.rules.priority import has_priorities
from fairlead.policies.rules.quotas import any_quota

_STAY_IN_LONG_TURN = 1.0
_STAY_IN_PLACE = 8.0
"""extra urgency where running jobs keep their places, in rounds: others take a turn once about as
many more are owed to them"""
_STAY_FOR_PROGRESS, _STAY_FOR_PROGRESS_IN_LONG_TURN = 0.2, 1.0
"""factors on the extra urgency of running jobs where progress counts"""


@dataclass(frozen=True)
class ShareMechanism:
    """The options of rounds that realise a policy's shares."""

    policy: Policy
    round_s: float = 360.0
    reallocate_s: float = 3600.0
    """seconds after which an allocation is renewed although only the progress of jobs changed"""
    stay: float = 0.5
    """extra urgency of running jobs over new ones: fewer preemptions, up to about 1"""
    restart_s: RestartOption = None
    """cost of a restart to a job, or auto for the measured one; the greater, the longer jobs run
    before others take their turn, so that restarts cost little of the time; as the policy asks
    if omitted"""

    def __post_init__(self) -> None:
        check_restart_s(self.restart_s)

    @cached_property
    def capabilities(self) -> Capabilities:
        """The capabilities of the policy; measured costs of restarts count as the option says.

        Computed once: a round asks for them several times.
        """
        own = capabilities_of(self.policy)
        weighs = self.restart_s == "auto" or (self.restart_s is None and own.reads_restarts)
        return own if own.reads_restarts == weighs else replace(own, reads_restarts=weighs)

    def turn_s(self, snap: Snapshot) -> float:
        """Return the time by which a row may be ahead or behind: a round, more if restarts cost.

        Measured costs count by their mean.
        """
        if isinstance(self.restart_s, (int, float)):
            return turn_of_all(self.round_s, self.restart_s)
        if not self.capabilities.reads_restarts or not len(snap.job):
            return self.round_s
        return turn_of_all(self.round_s, float(snap.restart_s.mean()))

    def stay_in_turn(self, turn_s: float) -> float:
        """Return the extra urgency of running jobs, more where restarts cost."""
        return self.stay if turn_s <= self.round_s else max(self.stay, _STAY_IN_LONG_TURN)

    def _turns_of_jobs(self, snap: Snapshot) -> FloatArray | None:
        """Return jobs → length of its turns by the measured costs; None: ``turn_s`` for all."""
        return turns_of_jobs(snap, self.round_s) if self.capabilities.reads_restarts else None

    def _is_stale(
        self, snap: Snapshot, changes: int, solved_at: float, at: float | None = None
    ) -> bool:
        """Return whether an allocation made at that time and count of changes is out of date.

        That is by ``at``, or else when the snapshot's round starts.
        """
        at = snap.starts_at if at is None else at
        return changes != snap.changes or (
            at - solved_at >= self.reallocate_s and self.capabilities.reads_progress
        )

    def _entries_of_jobs(
        self,
        snap: Snapshot,
        tables: FloatArray,
        on: IntArray | None = None,
        *,
        stands: bool = False,
    ) -> CandidateEntries:
        """Return the entries of jobs that may run; ``on``: jobs → accelerator on which it runs.

        ``tables`` are those of an account, ``stands`` says that its shares are those of the round
        before.
        """
        share: FloatArray = tables[SHARE]
        if runs_ahead(self.capabilities, snap):
            total = share.sum(axis=1)
            return shortest_first(tables, self.round_s, time_left_s(snap), total, on)
        turns, turn_s = self._turns_of_jobs(snap), self.turn_s(snap)
        stay = self.stay_in_turn(turn_s)
        if turns is None:
            if stands and turn_s <= self.round_s and keeps_places(self.capabilities, snap):
                stay += _STAY_IN_PLACE
            entries = urgent_entries(tables, turn_s, on, stay)
        else:
            tables = in_rounds(tables, turns, self.round_s)
            entries = urgent_entries(tables, self.round_s, on, stay)
        if self.capabilities.ends_early and not snap.profiles.single:
            entries = full_time_first(entries, share, share.sum(axis=1))
        return entries

    def _progress_of_jobs(self, snap: Snapshot, tables: FloatArray) -> CandidateEntries:
        """Return all entries of jobs by the progress owed to each; ``tables`` as above."""
        turns, turn_s = self._turns_of_jobs(snap), self.turn_s(snap)
        if turns is not None:
            tables = in_rounds(tables, turns, self.round_s)
        is_long = turns is not None or turn_s > self.round_s
        factor = _STAY_FOR_PROGRESS_IN_LONG_TURN if is_long else _STAY_FOR_PROGRESS
        stay = self.stay_in_turn(turn_s) * factor
        per = self.round_s if turns is not None else turn_s
        return progress_owed(tables, per, snap.speed, snap.on, stay)

    def _reserved(
        self, snap: Snapshot, known: IntArray, share: FloatArray, ends_at: float
    ) -> tuple[FloatArray, float]:
        """Return shares and end as ``reserve_for_long_gangs``; ``known`` are the jobs before."""
        if not is_among(snap.job, known).all():
            ends_at = 0.0  # new jobs may need more time
        return reserve_for_long_gangs(snap, share, ends_at, self.reallocate_s)

    def _choose_jobs(
        self,
        snap: Snapshot,
        owed_s: FloatArray,
        choice: RoundSelection,
        entries: CandidateEntries,
        values: ValuesDevices | None = None,
    ) -> None:
        """Select among the entries; devices that they leave free go to other jobs.

        Those are taken in the order of ``values``, or of the time owed without.
        """
        capabilities = self.capabilities
        choice.assign(entries)
        if not any(choice.free) or not capabilities.fills_idle:
            return
        order = owed_s if values is None else values.device_value(snap)
        choice.fill(snap.speed, order)
        # Where gangs take turns, devices can be idle that are faster than others in use.
        if any(choice.free) and choice.gang is not None and choice.move_to_faster(snap.speed):
            choice.fill(snap.speed, order)


@dataclass(frozen=True)
class JobShareRounds(ShareMechanism):
    """Rounds in which every job runs alone, by the time owed to it."""

    def initial(self) -> Account:
        """Return an account without jobs."""
        return Account.empty()

    def plan(self, snap: Snapshot, memory: Account) -> tuple[Plan, Account]:
        """Return the jobs to which most is owed, and the account after it."""
        return self.plan_warm(WarmStart(), snap, memory)

    def plan_warm(self, warm: WarmStart, snap: Snapshot, memory: Account) -> tuple[Plan, Account]:
        """Return the same, with the solver state that the planner keeps."""
        account = memory.advanced_to(snap)
        stale = self._is_stale(snap, account.changes, account.solved_at)
        trades = trades_accelerators(self.capabilities, snap)
        if stale:
            turns = self._turns_of_jobs(snap)
            account = account.with_new_shares(
                self.policy,
                snap,
                warm,
                carry_s=self.turn_s(snap) if turns is None else turns,
                by_value=self._valued_devices is not None,
                relative=relative_speed(snap.speed) if trades else None,
            )
            if reserves_gangs(self.capabilities, snap):
                shares = self._reserved(snap, memory.job, account.share, memory.ends_at)
                account = account.with_reserved(*shares)
        choice = RoundSelection.for_jobs(snap, snap.capacity.tolist())
        if trades:
            choice.assign_gangs(self._progress_of_jobs(snap, account.tables))
        else:
            entries = self._entries_of_jobs(snap, account.tables, snap.on, stands=not stale)
            self._choose_jobs(snap, account.owed_s, choice, entries, self._values(snap, account))
        until = snap.starts_at + self.round_s
        return Plan(*plan_moves(snap, choice.wanted), until, until, stale), account

    def repeated_rounds(
        self, snap: Snapshot, memory: Account
    ) -> Callable[[FloatArray, FloatArray], tuple[int, Account]] | None:
        """Return the account after rounds in which all with a share run; None if not all do.

        Devices without a share have to stay idle, and every job has to need one device.
        """
        capabilities = self.capabilities
        if (
            self._is_stale(snap, memory.changes, memory.solved_at, memory.starts_at + self.round_s)
            or capabilities.fills_idle
            or capabilities.ends_early
            or capabilities.reads_restarts
            or capabilities.reads_measured
            or not snap.profiles.single
            or not memory.stands_still_but(snap.on)
        ):
            return None
        return partial(self._after_rounds, snap, memory)

    def _after_rounds(
        self, snap: Snapshot, memory: Account, starts_at: FloatArray, received_s: FloatArray
    ) -> tuple[int, Account]:
        if self.capabilities.reads_progress:
            starts_at = starts_at[starts_at - memory.solved_at < self.reallocate_s]
        received_s = received_s[: len(starts_at)]
        return memory.after_rounds(snap.on, starts_at, received_s, self.turn_s(snap))

    def refill_candidates(self, memory: Account, idle: BoolArray) -> IntArray:
        """Return the jobs with shares of these accelerators: time is owed to no others there."""
        columns = idle.nonzero()[0].tolist()
        if not len(memory.job) or not columns:
            return NO_INTS
        wanted = memory.share[:, columns[0]] != 0
        for column in columns[1:]:
            wanted |= memory.share[:, column] != 0
        candidates: IntArray = memory.job[wanted]
        return candidates

    def refill_from_candidates(
        self, snap: Snapshot, memory: Account, idle: IntArray
    ) -> Placements | None:
        """Return jobs to which time is owed for the idle devices; None if devices are left."""
        account = memory.advanced_to(snap)
        choice = RoundSelection.for_waiting(snap, idle)
        choice.assign(self._entries_of_jobs(snap, account.tables))
        if any(choice.free) and self.capabilities.fills_idle:
            return None
        return choice.placed(snap, idle)

    def refill(self, snap: Snapshot, memory: Account, idle: IntArray) -> Placements:
        """Return waiting jobs for the idle devices: first those to which time is owed there."""
        if not len(snap.job):
            return NO_PLACEMENTS
        account = memory.advanced_to(snap)
        choice = RoundSelection.for_waiting(snap, idle)
        entries = self._entries_of_jobs(snap, account.tables)
        self._choose_jobs(snap, account.owed_s, choice, entries, self._values(snap, account))
        return choice.placed(snap, idle)

    @property
    def refill_ignores_running(self) -> bool:
        """True unless the policy compares waiting jobs with all others."""
        return self._valued_devices is None and not self.capabilities.ends_early

    def _values(self, snap: Snapshot, account: Account) -> ValuesDevices | None:
        """Return the policy if it orders jobs for idle devices; priorities go by time owed."""
        return self._valued_devices if account.by_value and not has_priorities(snap) else None

    @cached_property
    def _valued_devices(self) -> ValuesDevices | None:
        """The policy, or the one that it is around, if that values devices.

        Computed once: checking protocols at every solve is slow.
        """
        policy: object = self.policy
        while not isinstance(policy, ValuesDevices) and isinstance(policy, RealisesPolicy):
            policy = policy.policy
        return policy if isinstance(policy, ValuesDevices) else None


def trades_accelerators(capabilities: Capabilities, snap: Snapshot) -> bool:
    """Return whether gangs are chosen by the progress owed to them, on any accelerator.

    Quotas and priorities are part of the shares only, so with these the shares decide where.
    """
    return (
        capabilities.trades_accelerators
        and not capabilities.ends_early
        and _has_unbound_gangs(snap)
        and has_few_states(snap.capacity.tolist())
    )


def reserves_gangs(capabilities: Capabilities, snap: Snapshot) -> bool:
    """Return whether devices are reserved for long gangs, wherever they run.

    Quotas and priorities are part of the shares only, so with these the shares decide where.
    """
    return (
        capabilities.trades_accelerators
        and capabilities.ends_early
        and _has_unbound_gangs(snap)
        and has_few_states(snap.capacity.tolist())
    )


def keeps_places(capabilities: Capabilities, snap: Snapshot) -> bool:
    """Return whether running gangs keep their devices while an allocation stands.

    Quotas and priorities are part of the shares only, so with these the shares decide when.
    """
    return capabilities.keeps_places and _has_unbound_gangs(snap)


def _has_unbound_gangs(snap: Snapshot) -> bool:
    """Return whether jobs need several devices at once and no quota or priority binds any."""
    return not snap.profiles.single and not any_quota(snap) and not has_priorities(snap)


def runs_ahead(capabilities: Capabilities, snap: Snapshot) -> bool:
    """Return whether jobs may run ahead of their shares, as the policy asks.

    Quotas and priorities are part of the shares only, so with these the shares decide when.
    """
    return capabilities.ends_early and not any_quota(snap) and not has_priorities(snap)


def time_left_s(snap: Snapshot) -> FloatArray:
    """Return jobs → seconds left on its fastest accelerator."""
    left_s: FloatArray = snap.steps_left / np.maximum(snap.speed.max(axis=1), 1e-300)
    return left_s
