"""Derives a small cluster, its jobs and its faults from a seed."""

import random
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from fairlead.live.job_spec import JobSpec
from fairlead.live.scheduling_config import SchedulingConfig
from fairlead.mechanisms._queues.serving import serve_idle_devices, serve_preemptively
from fairlead.mechanisms.capacity import Capacity
from fairlead.mechanisms.hadar.hadare import HadarE
from fairlead.mechanisms.shares import Shares
from fairlead.mechanisms.srtf import Srtf
from fairlead.mechanisms.tiresias import Tiresias
from fairlead.model.arrays import IntArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.cluster import Cluster
from fairlead.model.lease import Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.placement import plan_moves
from fairlead.policies.isolated import Isolated

ACCELERATORS = ("v100", "k80")
SPEEDS = SpeedTable(
    {
        SpeedKey(name, gang, accelerator): speed * gang**0.5
        for name, row in {"big": (4.0, 1.0), "small": (3.0, 2.0)}.items()
        for gang in (1, 2)
        for accelerator, speed in zip(ACCELERATORS, row, strict=True)
    }
)
_OTHER_SPEEDS = SpeedTable(dict.fromkeys(SPEEDS.steps_per_s, 2.0))
_ROUNDS_S = (2.0, 2.0, 2.0, 2.0, 4.0, 4.0, 4.0, 30.0)
FAULTS = (
    *("server dies", "server dies", "server dies at a gate", "server dies at a gate"),
    *("server stops", "store fails", "power fails", "member dies", "member dies"),
    *(
        "keeper dies",
        "gang dies",
        "job is disconnected",
        "node is disconnected",
        "node is disconnected",
    ),
    *("devices are taken", "devices are taken", "server dies at a stop", "keeper begins late"),
    *("process dies at a point", "process dies at a point", "node joins"),
    *("file is damaged", "node is back before the server", "no descriptor is left"),
    *("disk is full", "clock jumps", "time stalls", "job is slow", "job cannot start"),
    *("job cannot start", "server dies as a keeper begins", "another server starts"),
    *("node blinks", "node blinks", "node is missing", "node is missing", "server is refused"),
    *(
        "node is returned too early",
        "planner fails",
        "node closes as a plan is made",
        "node closes as a plan is made",
    ),
)
_DRAWN_ACTIONS = (
    *("cancel", "hold", "hold", "drain", "tenant", "priority", "submit", "change of mind"),
    *("cordon", "remove"),
)
ACTIONS = (*_DRAWN_ACTIONS, "policy")
MERGE_FAULT = "server dies at a merge"
"""fault of scenarios in which jobs train in copies"""
_COPIES_SHARE = 0.08
"""share of the seeds in which jobs train in copies"""


ENDLESS = JobSpec(
    command=("shell", "1000"),
    name="endless",
    workload="small",
    tenant="blue",
    retries=1000,
    grace_s=5.0,
)
"""a job without the job library that runs until it is cancelled"""


@dataclass(frozen=True)
class Fault:
    """One injected fault or operator action."""

    at: float
    what: str
    for_s: float
    pick: float
    """number in [0, 1) that selects the target"""


@dataclass
class Scenario:
    """Everything that a seed determines in advance."""

    seed: int
    cluster: Cluster
    configs: tuple[SchedulingConfig, ...]
    """scheduling configs of consecutive servers, used in turn"""
    live_config: SchedulingConfig | None
    """scheduling config that an operator sets while a server runs"""
    round_s: float
    limits: dict[str, dict[str, float]]
    """tenant → accelerator → maximum devices"""
    jobs: list[tuple[float, JobSpec]]
    faults: list[Fault]
    trouble: float
    """probability that a call or message is late, lost or duplicated"""
    slow_disk: float
    events_per_state: int
    quiet_at: float
    """time after which no fault is injected"""
    real_store: bool
    rng: random.Random = field(repr=False)


def scenario(seed: int) -> Scenario:
    """Return the scenario of a seed; equal seeds give equal scenarios."""
    rng = random.Random(seed)
    copies = random.Random(f"copies of {seed}")
    forks = copies.random() < _COPIES_SHARE
    mechanism = _mechanism(rng, round_s := rng.choice(_ROUNDS_S))
    limits = {"red": {"v100": 1.0}} if rng.random() < 0.2 else {}
    counts = rng.choice(({"v100": 1, "k80": 1}, {"v100": 2, "k80": 1}, {"v100": 2, "k80": 2}))
    jobs = sorted(
        (
            (rng.choice((0.0, rng.uniform(0.0, 8.0))), _job(rng, counts, mechanism, limits))
            for _ in range(_few(rng))
        ),
        key=lambda job: job[0],
    )
    if rng.random() < 0.15:
        jobs.insert(0, (0.0, ENDLESS))
    calm = rng.random() < 0.25
    quiet_at = rng.uniform(6.0, 24.0)
    n_faults = rng.choice((0, 1, 1, 2, 3, 4))
    whats = [rng.choice(FAULTS) for _ in range(n_faults)]
    whats += [rng.choice(_DRAWN_ACTIONS) for _ in range(rng.choice((0, 0, 1, 2)))]
    faults = sorted(
        (
            Fault(rng.uniform(0.0, quiet_at), what, rng.uniform(0.5, 8.0), rng.random())
            for what in whats
        ),
        key=lambda fault: fault.at,
    )
    plan = Scenario(
        seed=seed,
        cluster=Cluster.of(counts, per_node=rng.choice((1, 1, 2))),
        configs=(),
        live_config=None,
        round_s=round_s,
        limits=limits,
        jobs=jobs,
        faults=faults,
        trouble=0.0 if calm else rng.choice((0.02, 0.2)),
        slow_disk=0.0 if calm else rng.choice((0.0, 0.2)),
        events_per_state=rng.choice((7, 25, 10_000)),
        quiet_at=quiet_at,
        real_store=seed % 25 == 7,
        rng=rng,
    )
    plan_lead_s = round_s * rng.choice((0.0, 0.25))
    if forks:
        mechanism = _train_in_copies(plan, copies)
    plan.configs = _configs(seed, mechanism, plan_lead_s)
    _add_live_changes(plan, mechanism, plan_lead_s)
    return plan


def _train_in_copies(plan: Scenario, rng: random.Random) -> HadarE:
    """Make the jobs of a scenario train in copies on several nodes; return the mechanism.

    Most of the faults are drawn for such jobs as for all others; some servers die in a merge.
    """
    counts = rng.choice(({"v100": 1, "k80": 1}, {"v100": 2, "k80": 1}, {"v100": 2, "k80": 2}))
    plan.cluster = Cluster.of(counts, per_node=1)
    plan.round_s, plan.limits = rng.choice((2.0, 2.0, 4.0)), {}
    plan.jobs = sorted(
        ((rng.choice((0.0, rng.uniform(0.0, 8.0))), _copied_job(rng)) for _ in range(_few(rng))),
        key=lambda job: job[0],
    )
    plan.faults += [
        Fault(rng.uniform(0.0, plan.quiet_at), MERGE_FAULT, rng.uniform(0.5, 8.0), rng.random())
        for _ in range(rng.choice((0, 1, 1, 2)))
    ]
    plan.faults.sort(key=lambda fault: fault.at)
    return HadarE(round_s=plan.round_s, restart_s=0.1, mixed=False, declared=True)


def _copied_job(rng: random.Random) -> JobSpec:
    copies = rng.choice((None, 2, 2, 3))
    return JobSpec(
        command=("train",),
        tenant=rng.choice(("red", "blue")),
        workload=rng.choice(("big", "small")),
        steps=rng.randint(6, 60),
        max_copies=copies,
        environment={"GANG": "1", **({"COPIES": str(copies)} if copies else {})},
        retries=rng.choice((1000, 1000, 1000, 1)),
        grace_s=rng.choice((2.0, 5.0)),
    )


def _add_live_changes(plan: Scenario, mechanism: Any, plan_lead_s: float) -> None:
    """Sometimes let an operator change the policy of a running server, once or twice."""
    rng = random.Random(f"live changes of {plan.seed}")
    if rng.random() >= 0.2:
        return
    speeds, chosen = _other_config(rng, mechanism)
    plan.live_config = SchedulingConfig(
        beliefs=speeds, mechanism=chosen, plan_lead_s=plan_lead_s, text="live"
    )
    plan.faults += [
        Fault(rng.uniform(0.0, plan.quiet_at), "policy", rng.uniform(0.5, 8.0), rng.random())
        for _ in range(rng.choice((1, 1, 2)))
    ]
    plan.faults.sort(key=lambda fault: fault.at)


def _configs(seed: int, mechanism: Any, plan_lead_s: float) -> tuple[SchedulingConfig, ...]:
    """Return the servers' configs: mostly one, sometimes a second mechanism or speed table.

    Jobs without checkpoints are moved no more often than under the first config.
    """
    rng = random.Random(f"rules of {seed}")
    choices = [(SPEEDS, mechanism)]
    if rng.random() < 0.25:
        choices.append(_other_config(rng, mechanism))
    return tuple(
        SchedulingConfig(
            beliefs=speeds, mechanism=chosen, plan_lead_s=plan_lead_s, text=str(number)
        )
        for number, (speeds, chosen) in enumerate(choices)
    )


def _other_config(rng: random.Random, mechanism: Any) -> tuple[SpeedTable, Any]:
    """Return speeds and a mechanism that moves jobs no more often than another one."""
    round_s = mechanism.round_s
    alternatives: list[Any] = [
        Srtf(round_s),
        Tiresias(round_s=round_s, threshold_s=3.0),
        Capacity(round_s),
    ]
    if isinstance(mechanism, LeastServedFirst | Shares | HadarE):
        alternatives += [LeastServedFirst(round_s), Shares(policy=Isolated(), round_s=round_s)]
    return rng.choice((SPEEDS, _OTHER_SPEEDS)), rng.choice(alternatives)


def _few(rng: random.Random) -> int:
    return rng.choice((1, 2, 2, 3, 4))


def _job(
    rng: random.Random, counts: dict[str, int], mechanism: Any, limits: dict[str, Any]
) -> JobSpec:
    # Gangs of two might never fit into a tenant's limits.
    gang = 2 if not limits and max(counts.values()) > 1 and rng.random() < 0.3 else 1
    fits = [accelerator for accelerator in ACCELERATORS if counts[accelerator] >= gang]
    only: tuple[str, ...] | None = (rng.choice(fits),) if rng.random() < 0.15 else None
    if gang == 1 and not limits and max(counts.values()) > 1 and rng.random() < 0.12:
        # The job needs one device of one accelerator or two of the other.
        double = rng.choice([name for name in ACCELERATORS if counts[name] > 1])
        only = (*(name for name in ACCELERATORS if name != double), f"{double}=2")
    steps = rng.randint(10, 30) if rng.random() < 0.2 else rng.randint(3, 14)
    shell = rng.random() < 0.15
    # A job without checkpoints must not be moved repeatedly.
    duration_s = (
        1.0 if isinstance(mechanism, LeastServedFirst | Shares) else rng.choice((2.0, 40.0))
    )
    return JobSpec(
        command=("shell", f"{duration_s:g}") if shell else ("train",),
        tenant=rng.choice(("red", "blue")),
        workload=rng.choice(("big", "small")),
        gang=gang,
        steps=steps,
        priority=rng.choice((0, 0, 0, 1)),
        accelerators=only,
        environment={"GANG": str(gang), **({"ALLOWED": ",".join(only)} if only else {})},
        retries=rng.choice((1000, 1000, 1000, 1)),
        grace_s=rng.choice((2.0, 5.0)),
    )


def _mechanism(rng: random.Random, round_s: float) -> Any:
    draw = rng.random()
    if draw < 0.6:
        return LeastServedFirst(round_s=round_s)
    if draw < 0.75:
        return Srtf(round_s=round_s)
    if draw < 0.85:
        return Tiresias(round_s=round_s, threshold_s=3.0)
    if draw < 0.92:
        return Capacity(round_s=round_s)
    return Shares(policy=Isolated(), round_s=round_s)


@dataclass(frozen=True)
class LeastServedFirst:
    """Serves the jobs with the least device time first; jobs move in nearly every round."""

    capabilities: ClassVar[Capabilities] = Capabilities(per_accelerator_gangs=True)
    round_s: float

    def initial(self) -> None:
        """Return no memory: the received time in the snapshot suffices."""

    def plan(self, snap: Snapshot, memory: None) -> tuple[Plan, None]:
        """Return a plan that runs the jobs with the least device time."""
        until = snap.starts_at + self.round_s
        wanted = serve_preemptively(snap, _least_served(snap), fastest=True)
        return Plan(*plan_moves(snap, wanted), until, until), memory

    def refill(self, snap: Snapshot, memory: None, idle: IntArray) -> Placements:
        """Return waiting jobs in the same order for idle devices."""
        del memory
        return serve_idle_devices(snap, _least_served(snap), idle, fastest=True)


def _least_served(snap: Snapshot) -> IntArray:
    return np.lexsort((snap.job, snap.received_s.sum(axis=1)))
