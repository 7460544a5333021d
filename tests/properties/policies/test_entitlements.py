"""Weights and priorities of a tenant's jobs never take anything from other tenants."""

import pytest
from tests.support.rounds import Rounds

from fairlead.mechanisms.factory import create_live_mechanism
from fairlead.model.capabilities import capabilities_of
from fairlead.model.errors import UsageError
from fairlead.model.job import Job
from fairlead.model.tenants.weight_scope import WeightScope
from fairlead.registry import available

_ROUNDS = 36
_EPS = 0.06
"""rounding of shares to whole rounds"""


def _can_run_live(policy: str) -> bool:
    try:
        create_live_mechanism(policy)
    except UsageError:
        return False
    return True


Numbers = list[tuple[float, int]]
"""weight and priority of each job"""
HONEST: Numbers = [(1.0, 0)] * 3
INFLATED: list[Numbers] = [
    [(1000.0, 1000)] * 3,
    [(1000.0, 0), (1.0, 0), (1.0, 0)],
    [(1.0, 1000), (1.0, 5), (1000.0, -3)],
]
POLICIES = [
    policy
    for policy in sorted({*available("policies"), *available("mechanisms")})
    if _can_run_live(policy)
]
DIVIDING = [
    policy
    for policy in POLICIES
    if capabilities_of(create_live_mechanism(policy)).divides_among_tenants
]


def steps_of_other(
    policy: str,
    numbers: Numbers,
    scope: WeightScope = "tenant",
    *,
    across_tenants: bool = False,
) -> float:
    """Return the mean speed of tenant b while tenant a submits jobs with these numbers."""
    rounds = Rounds(policy, each=2, weight_scope=scope)
    for i, workload in enumerate(["big", "small", "big"]):
        rounds.submit(Job(id=f"b{i}", workload=workload, total_steps=1e7, tenant="b"))
    for i, (weight, priority) in enumerate(numbers):
        rounds.submit(
            Job(
                id=f"a{i}",
                workload="big",
                total_steps=1e7,
                tenant="a",
                weight=weight,
                priority=priority,
                across_tenants=across_tenants,
            )
        )
    total = 0.0
    for _ in range(_ROUNDS):
        rounds.round()
        total += rounds.steps_per_s("b")
    return total / _ROUNDS


@pytest.mark.parametrize("policy", POLICIES)
def test_inflated_weights_and_priorities_take_nothing_from_another_tenant(policy: str) -> None:
    honest = steps_of_other(policy, HONEST)
    for numbers in INFLATED:
        inflated = steps_of_other(policy, numbers)
        assert inflated >= (1 - _EPS) * honest, (numbers, inflated, honest)


@pytest.mark.parametrize("policy", DIVIDING)
def test_more_jobs_take_nothing_where_tenants_divide_the_cluster(policy: str) -> None:
    few, many = steps_of_other(policy, HONEST), steps_of_other(policy, [(1000.0, 9)] * 9)
    assert many >= 0.9 * few  # a tenant with few jobs also gets what others cannot use


def test_in_the_scope_of_entitlements_the_number_of_jobs_takes_nothing() -> None:
    few = steps_of_other("max-min", HONEST, "entitlement")
    many = steps_of_other("max-min", [(1000.0, 9)] * 9, "entitlement")
    assert many >= (1 - _EPS) * few
    assert steps_of_other("max-min", HONEST * 3) < 0.8 * few  # one share for every job


@pytest.mark.parametrize("numbers", [[(1.0, 1000)] * 4, [(1000.0, 0)] * 4])
def test_numbers_that_an_admin_set_count_against_all_tenants(numbers: Numbers) -> None:
    granted = steps_of_other("max-min", numbers, across_tenants=True)
    assert granted < 0.1 * steps_of_other("max-min", HONEST)
    assert steps_of_other("max-min", numbers, "cluster") == granted
