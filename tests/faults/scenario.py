"""From a seed to a small cluster, its jobs, and all that goes wrong."""

import random
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from fairlead.live.job_spec import JobSpec
from fairlead.live.scheduling_config import Rules
from fairlead.mechanisms._queues.serving import serve_idle_devices, serve_preemptively
from fairlead.mechanisms.capacity import Capacity
from fairlead.mechanisms.shares import Shares
from fairlead.mechanisms.srtf import Srtf
from fairlead.mechanisms.tiresias import Tiresias
from fairlead.model.arrays import IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.lease import Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.placement import move
from fairlead.policies.isolated import Isolated

KINDS = ("v100", "k80")
SPEEDS = SpeedTable(
    {
        SpeedKey(name, gang, kind): speed * gang**0.5
        for name, row in {"big": (4.0, 1.0), "small": (3.0, 2.0)}.items()
        for gang in (1, 2)
        for kind, speed in zip(KINDS, row, strict=True)
    }
)
_OTHER_SPEEDS = SpeedTable(dict.fromkeys(SPEEDS.steps_per_s, 2.0))
_ROUNDS_S = (2.0, 2.0, 2.0, 2.0, 4.0, 4.0, 4.0, 30.0)
FAULTS = (
    *("server dies", "server dies", "server dies at a gate", "server dies at a gate"),
    *("server stops", "store fails", "power fails", "member dies", "member dies"),
    *("keeper dies", "gang dies", "job is cut off", "node is cut off", "node is cut off"),
    *("others come", "others come", "server dies at a stop", "keeper begins late"),
    *("process dies at a point", "process dies at a point", "node joins"),
    *("file is damaged", "node is back before the server", "no descriptor is left"),
    *("disk is full", "clock jumps", "time stalls", "job is slow", "job cannot start"),
    *("job cannot start", "server dies as a keeper begins", "another server starts"),
    *("node blinks", "node blinks", "node is missing", "node is missing", "server is refused"),
    *(
        "node is taken back too early",
        "planner fails",
        "node closes as a plan is made",
        "node closes as a plan is made",
    ),
)
ACTIONS = (
    *("cancel", "hold", "hold", "drain", "tenant", "priority", "submit", "change of mind"),
    *("cordon", "remove"),
)


ENDLESS = JobSpec(
    command=("shell", "1000"),
    name="endless",
    workload="small",
    tenant="blue",
    retries=1000,
    grace_s=5.0,
)
"""a job without the library that goes on until it is cancelled"""


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong or that somebody does, and for how long."""

    at: float
    what: str
    for_s: float
    pick: float
    """in [0, 1): whom it hits"""


@dataclass
class Scenario:
    """All that a seed decides beforehand."""

    seed: int
    cluster: Cluster
    rules: tuple[Rules, ...]
    """what servers go by, each of them by the next"""
    round_s: float
    limits: dict[str, dict[str, float]]
    """tenant → accelerator → devices of which it never holds more"""
    jobs: list[tuple[float, JobSpec]]
    happenings: list[Fault]
    trouble: float
    """how likely calls and messages are late, lost or doubled"""
    slow_disk: float
    events_per_state: int
    quiet_at: float
    """from then on nothing goes wrong any more"""
    real_store: bool
    rng: random.Random = field(repr=False)


def scenario(seed: int) -> Scenario:
    """Return what happens under a seed, always the same."""
    rng = random.Random(seed)
    mechanism = _mechanism(rng, round_s := rng.choice(_ROUNDS_S))
    limits = {"red": {"v100": 1.0}} if rng.random() < 0.2 else {}
    counts = rng.choice(({"v100": 1, "k80": 1}, {"v100": 2, "k80": 1}, {"v100": 2, "k80": 2}))
    jobs = sorted(
        (
            (rng.choice((0.0, rng.uniform(0.0, 8.0))), _job(rng, counts, mechanism, limits))
            for _ in range(_few(rng))
        ),
        key=lambda one: one[0],
    )
    if rng.random() < 0.15:
        jobs.insert(0, (0.0, ENDLESS))
    calm = rng.random() < 0.25
    quiet_at = rng.uniform(6.0, 24.0)
    n_faults = rng.choice((0, 1, 1, 2, 3, 4))
    whats = [rng.choice(FAULTS) for _ in range(n_faults)]
    whats += [rng.choice(ACTIONS) for _ in range(rng.choice((0, 0, 1, 2)))]
    happenings = sorted(
        (
            Fault(rng.uniform(0.0, quiet_at), what, rng.uniform(0.5, 8.0), rng.random())
            for what in whats
        ),
        key=lambda one: one.at,
    )
    plan = Scenario(
        seed=seed,
        cluster=Cluster.of(counts, per_node=rng.choice((1, 1, 2))),
        rules=(),
        round_s=round_s,
        limits=limits,
        jobs=jobs,
        happenings=happenings,
        trouble=0.0 if calm else rng.choice((0.02, 0.2)),
        slow_disk=0.0 if calm else rng.choice((0.0, 0.2)),
        events_per_state=rng.choice((7, 25, 10_000)),
        quiet_at=quiet_at,
        real_store=seed % 25 == 7,
        rng=rng,
    )
    plan.rules = _rules(seed, mechanism, round_s * rng.choice((0.0, 0.25)))
    return plan


def _rules(seed: int, mechanism: Any, plan_lead_s: float) -> tuple[Rules, ...]:
    """Return what servers go by: mostly the same, now and then another mechanism or other speeds.

    What keeps nothing of its work is moved no more often than under the first.
    """
    rng = random.Random(f"rules of {seed}")
    made = [(SPEEDS, mechanism)]
    if rng.random() < 0.25:
        round_s = mechanism.round_s
        others = [Srtf(round_s), Tiresias(round_s=round_s, threshold_s=3.0), Capacity(round_s)]
        if isinstance(mechanism, Turns | Shares):
            others += [Turns(round_s), Shares(policy=Isolated(), round_s=round_s)]
        made.append((rng.choice((SPEEDS, _OTHER_SPEEDS)), rng.choice(others)))
    return tuple(
        Rules(beliefs=speeds, mechanism=one, plan_lead_s=plan_lead_s, text=str(number))
        for number, (speeds, one) in enumerate(made)
    )


def _few(rng: random.Random) -> int:
    return rng.choice((1, 2, 2, 3, 4))


def _job(
    rng: random.Random, counts: dict[str, int], mechanism: Any, limits: dict[str, Any]
) -> JobSpec:
    # Some gangs would never fit into the limits.
    gang = 2 if not limits and max(counts.values()) > 1 and rng.random() < 0.3 else 1
    fits = [kind for kind in KINDS if counts[kind] >= gang]
    only: tuple[str, ...] | None = (rng.choice(fits),) if rng.random() < 0.15 else None
    if gang == 1 and not limits and max(counts.values()) > 1 and rng.random() < 0.12:
        # One device of one kind does as much for it as two of another.
        kind = rng.choice([kind for kind in KINDS if counts[kind] > 1])
        only = (*(one for one in KINDS if one != kind), f"{kind}=2")
    steps = rng.randint(10, 30) if rng.random() < 0.2 else rng.randint(3, 14)
    shell = rng.random() < 0.15
    # What keeps nothing of its work must not be moved again and again.
    lasts_s = 1.0 if isinstance(mechanism, Turns | Shares) else rng.choice((2.0, 40.0))
    return JobSpec(
        command=("shell", f"{lasts_s:g}") if shell else ("train",),
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
    kind = rng.random()
    if kind < 0.6:
        return Turns(round_s=round_s)
    if kind < 0.75:
        return Srtf(round_s=round_s)
    if kind < 0.85:
        return Tiresias(round_s=round_s, threshold_s=3.0)
    if kind < 0.92:
        return Capacity(round_s=round_s)
    return Shares(policy=Isolated(), round_s=round_s)


@dataclass(frozen=True)
class Turns:
    """Runs those who have had least time so far: jobs stop and move in nearly every round."""

    takes_alternatives: ClassVar[bool] = True
    round_s: float

    def initial(self) -> None:
        """Return nothing: the time that jobs have had is all it goes by."""

    def plan(self, snap: Snapshot, memory: None) -> tuple[Plan, None]:
        """Return the jobs that have had least time."""
        until = snap.starts_at + self.round_s
        wanted = serve_preemptively(snap, _least_served(snap), fastest=True)
        return Plan(*move(snap, wanted), until, until), memory

    def refill(self, snap: Snapshot, memory: None, idle: IntArray) -> Placements:
        """Return waiting jobs in the same order for devices that have fallen idle."""
        del memory
        return serve_idle_devices(snap, _least_served(snap), idle, fastest=True)


def _least_served(snap: Snapshot) -> IntArray:
    return np.lexsort((snap.job, snap.received_s.sum(axis=1)))
