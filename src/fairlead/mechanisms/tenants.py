"""Rounds that realise devices of tenants: a tenant's devices become time shares of its jobs."""

from dataclasses import dataclass, field

from fairlead.mechanisms._rounds.deficits import Account
from fairlead.mechanisms._rounds.share_rounds import JobShareRounds
from fairlead.mechanisms._rounds.tenant_jobs import job_rows
from fairlead.mechanisms._rounds.turns import RestartOption
from fairlead.model.arrays import IntArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.lease import Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import Policy, WarmStart


@dataclass(frozen=True)
class Tenants:
    """Divide each tenant's devices among its jobs and run those to which most time is owed.

    Devices go to the jobs they were allotted for, while these can hold them; the rest goes
    to tenants that still want it, by weight. Rounds are those of ``shares``.
    """

    policy: Policy
    round_s: float = 300.0
    reallocate_s: float = 3600.0
    """seconds after which an allocation is renewed although only the progress of jobs changed"""
    stay: float = 0.5
    """extra urgency of running jobs over new ones: fewer preemptions, up to about 1"""
    restart_s: RestartOption = None
    """cost of a restart to a job, or auto for the measured one; the greater, the longer jobs run
    before others take their turn, so that restarts cost little of the time; as the policy asks
    if omitted"""
    _rounds: JobShareRounds = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        options = self.round_s, self.reallocate_s, self.stay, self.restart_s
        rounds = JobShareRounds(job_rows(self.policy), *options)
        object.__setattr__(self, "_rounds", rounds)

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the policy."""
        return self._rounds.capabilities

    def initial(self) -> Account:
        """Return an account without jobs."""
        return self._rounds.initial()

    def plan(self, snap: Snapshot, memory: Account) -> tuple[Plan, Account]:
        """Return the jobs to which most is owed, and the account after it."""
        return self.plan_warm(WarmStart(), snap, memory)

    def plan_warm(self, warm: WarmStart, snap: Snapshot, memory: Account) -> tuple[Plan, Account]:
        """Return the same, with the solver state that the planner keeps."""
        return self._rounds.plan_warm(warm, snap, memory)

    def refill(self, snap: Snapshot, memory: Account, idle: IntArray) -> Placements:
        """Return waiting jobs for the idle devices: first those to which time is owed there."""
        return self._rounds.refill(snap, memory, idle)
