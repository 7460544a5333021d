"""Gavel's round mechanism as the paper describes it (§3.2, §5, Algorithm 1)."""

from dataclasses import dataclass, replace

import numpy as np

from fairlead.mechanisms._rounds.deficits import Account
from fairlead.mechanisms._rounds.selection import RoundSelection
from fairlead.model.capabilities import Capabilities, capabilities_of
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.placement import plan_moves
from fairlead.policies.base import Policy, WarmStart


@dataclass(frozen=True)
class Gavel:
    """Run the jobs whose share is largest for the time they have received, as in the paper.

    The priority of a job on an accelerator is its share over the fraction of that
    accelerator's time it has had since the last allocation. Devices that fall idle stay idle
    until all of the round's jobs are done or its time has passed; arriving jobs wait for that.
    """

    policy: Policy
    round_s: float = 360.0
    min_interval_s: float = 0.0
    """least time between two allocations; the published artifact uses 1920"""

    @property
    def capabilities(self) -> Capabilities:
        """Those of the policy; progress is reported in every round, as in the paper."""
        return replace(capabilities_of(self.policy), reads_progress=True)

    def initial(self) -> Account:
        """Return an account without jobs."""
        return Account.empty()

    def plan(self, snap: Snapshot, memory: Account) -> tuple[Plan, Account]:
        """Return Algorithm 1's choice, with time received counted from the last allocation."""
        return self.plan_warm(WarmStart(), snap, memory)

    def plan_warm(self, warm: WarmStart, snap: Snapshot, memory: Account) -> tuple[Plan, Account]:
        """Return the same, with the solver state that the planner keeps."""
        account = memory.advanced_to(snap)
        stale = account.changes != snap.changes and (
            snap.starts_at - account.solved_at >= self.min_interval_s
        )
        if stale:
            account = account.with_new_shares(self.policy, snap, warm, carry_s=0.0)
        # Owed time starts at 0 with every allocation, so time received since then is the
        # promised time less the debt. Half a round stands for it at first, as in the artifact.
        promised = account.share * (snap.starts_at - account.solved_at)
        received = np.maximum(promised - account.owed_s, 0.0) + self.round_s / 2
        fraction = received / received.sum(axis=0)
        row, column = account.share.nonzero()
        priority = account.share[row, column] / fraction[row, column]
        # Equal priorities must not favour one accelerator round after round, so the order in
        # which accelerators are filled rotates (the artifact draws it at random).
        turn = (column + int(snap.starts_at // self.round_s)) % len(snap.capacity)
        order = np.lexsort((row, turn, -priority.round(9)))
        choice = RoundSelection.for_jobs(snap, snap.capacity.tolist())
        choice.pick(row[order], column[order])
        if self.capabilities.fills_idle:
            choice.fill(snap.speed, account.owed_s)
        until = snap.starts_at + self.round_s
        return Plan(*plan_moves(snap, choice.wanted), until, until, stale), account
