"""Gangs above a tenant limit run on other accelerators instead of waiting forever."""

import numpy as np
import pytest
from tests.conformance.registered import NAMES, make_mechanism

from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.model.profiles import Profiles
from fairlead.model.tenants.limits import within_tenant_limits
from fairlead.model.tenants.tenant import Tenant
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario
from fairlead.testing.mechanisms.scenarios import SPEEDS

KINDS = ("v100", "k80")


def profiles(gang: int, tenant: int, min_gang: int | None = None) -> Profiles:
    speed, ones = np.array([[9.0, 3.0]]), np.ones(1)
    least = None if min_gang is None else np.array([min_gang])
    return Profiles(speed, np.array([gang]), ones, np.array([tenant]), min_gang=least)


@pytest.mark.parametrize(
    ("gang", "limit", "speed"),
    [
        (2, {"v100": 1.0}, [0.0, 3.0]),
        (2, {"v100": 1.5}, [9.0, 3.0]),  # a part of a device counts as one
        (1, {"v100": 1.0}, [9.0, 3.0]),
        (2, {"v100": 1.0, "k80": 1.0}, [9.0, 3.0]),  # nowhere: it waits
        (2, {}, [9.0, 3.0]),
    ],
)
def test_a_gang_runs_where_limits_allow_it(
    gang: int, limit: dict[str, float], speed: list[float]
) -> None:
    tenants = [Tenant("outer", limit=limit), Tenant("a", parent="outer")]
    unlimited = profiles(gang, 1)
    result = within_tenant_limits(unlimited, tenants, KINDS)
    assert result.speed.tolist() == [speed]
    assert (result is unlimited) == (speed == [9.0, 3.0])


def test_an_elastic_gang_may_shrink_to_its_limit() -> None:
    unlimited = profiles(2, 0, min_gang=1)
    assert within_tenant_limits(unlimited, [Tenant("a", limit={"v100": 1.0})], KINDS) is unlimited


@pytest.mark.parametrize("name", NAMES)
def test_no_mechanism_lets_such_a_gang_wait_on_an_idle_cluster(name: str) -> None:
    cluster = Cluster.of({"v100": 2, "k80": 2}, per_node=2)
    job = Job(id="a", workload="big", gang=2, total_steps=1000.0, tenant="t")
    tenants = (Tenant("t", limit={"v100": 1.0}),)
    record, _ = simulate(
        Scenario(
            cluster=cluster,
            speeds=SPEEDS,
            jobs=(job,),
            mechanism=make_mechanism(name),
            tenants=tenants,
        )
    )
    assert np.isfinite(record.finished_at).all()
