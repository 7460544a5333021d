"""Rounds of shares in which nothing moves are taken at once, with the same result."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from fairlead.files import read_speeds
from fairlead.mechanisms._rounds.deficits import Account
from fairlead.mechanisms.shares import Shares
from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Accelerator, Cluster
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import WarmStart
from fairlead.policies.rules.priority import create_policy
from fairlead.sim.driver import simulate
from fairlead.sim.generate import GeneratorKind, Recipe, generate
from fairlead.sim.record import Record
from fairlead.sim.scenario import Scenario

SPEEDS = read_speeds("gandiva-fair")
PRICES = {"v100": 2.5, "p100": 1.5, "k80": 0.5}
CLUSTER = Cluster.of(
    dict.fromkeys(PRICES, 2),
    details={name: Accelerator(name, usd_per_hour=usd) for name, usd in PRICES.items()},
)


@dataclass(frozen=True)
class OwnPlans(Shares):
    """Rounds of a plug-in, which might plan otherwise; counts its plans."""

    plans: list[float] = field(default_factory=list, hash=False, compare=False)

    def plan_warm(self, warm: WarmStart, snap: Snapshot, memory: Account) -> tuple[Plan, Account]:
        self.plans.append(snap.starts_at)
        return super().plan_warm(warm, snap, memory)


@dataclass(frozen=True)
class CountedPlans(OwnPlans):
    """Rounds that count their plans."""

    def repeated_rounds(
        self, snap: Snapshot, memory: Account
    ) -> Callable[[FloatArray, FloatArray], tuple[int, Account]] | None:
        return super().repeated_rounds(snap, memory)


def _run(
    policy: str,
    kind: GeneratorKind,
    *,
    at_once: bool,
    mechanism_class: type[OwnPlans] = CountedPlans,
) -> tuple[Record, Account, int]:
    mechanism = mechanism_class(create_policy(policy))
    recipe = Recipe(kind=kind, jobs=30, rate=20.0, duration_factor=0.3, max_gang=2)
    events: list[Any] = []
    scenario = Scenario(
        cluster=CLUSTER,
        speeds=SPEEDS,
        jobs=generate(recipe, SPEEDS, random.Random(5), CLUSTER),
        mechanism=mechanism,
        restore_cost_s=30.0,
        on_event=None if at_once else events.append,  # who watches events gets every round
    )
    record, scheduler = simulate(scenario)
    assert scheduler is not None
    return record, scheduler.memory, len(mechanism.plans)


@pytest.mark.parametrize("policy", ["cost", "cost:agnostic", "cost-slo"])
def test_rounds_taken_at_once_leave_the_same_record_and_memory(policy: str) -> None:
    record, memory, plans = _run(policy, "continuous-single", at_once=True)
    other, expected, all_plans = _run(policy, "continuous-single", at_once=False)
    assert plans < 0.7 * all_plans
    assert record.rounds == other.rounds == all_plans
    assert (record.solves, record.ended_at) == (other.solves, other.ended_at)
    for column in ("started_at", "finished_at", "preemptions", "migrations", "device_s"):
        assert np.array_equal(getattr(record, column), getattr(other, column)), column
    assert memory.tables.tobytes() == expected.tables.tobytes()
    assert (memory.starts_at, memory.solved_at) == (expected.starts_at, expected.solved_at)


@pytest.mark.parametrize(
    ("policy", "kind"), [("cost", "continuous-multiple"), ("max-min", "continuous-single")]
)
def test_rounds_with_gangs_or_filled_devices_are_all_planned(
    policy: str, kind: GeneratorKind
) -> None:
    record, _, plans = _run(policy, kind, at_once=True)
    assert plans == record.rounds


def test_a_mechanism_that_plans_by_itself_plans_every_round() -> None:
    record, _, plans = _run("cost", "continuous-single", at_once=True, mechanism_class=OwnPlans)
    assert plans == record.rounds
