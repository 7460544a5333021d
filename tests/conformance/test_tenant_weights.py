"""Every policy and mechanism declares correctly whether tenant weights matter."""

import pytest
from tests.conformance.registered import FLUID, REALISES

from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.capabilities import capabilities_of
from fairlead.model.cluster import Accelerator, Cluster
from fairlead.model.job import Job
from fairlead.model.tenants.tenant import Tenant
from fairlead.registry import available
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario
from fairlead.testing.mechanisms.scenarios import SPEEDS

DECIDES = sorted({*available("policies"), *available("mechanisms")} - {*REALISES, *FLUID})
PRICED = {name: Accelerator(name, usd_per_hour=1.0) for name in ("v100", "k80")}
CLUSTER = Cluster.of({"v100": 2, "k80": 2}, per_node=2, details=PRICED)
JOBS = [
    Job(
        id=f"{tenant}-{i}",
        workload=("big", "small", "cnn")[i % 3],
        total_steps=20_000 + 3_000 * i,
        tenant=tenant,
        deadline_s=1e6,
        utilization=0.3,
        memory_gib=2.0,
    )
    for i in range(6)
    for tenant in ("red", "blue")
]


def finished_at(policy: str, weight: float) -> list[float]:
    """Return the jobs' finish times for a tenant of this weight beside one of weight 1."""
    scenario = Scenario(
        cluster=CLUSTER,
        speeds=SPEEDS,
        jobs=JOBS,
        mechanism=create_mechanism(policy),
        tenants=(Tenant("red", weight=weight), Tenant("blue")),
    )
    finished: list[float] = simulate(scenario)[0].finished_at.tolist()
    return finished


@pytest.mark.parametrize("policy", DECIDES)
def test_tenant_weights_matter_where_declared(policy: str) -> None:
    counts = finished_at(policy, 1.0) != finished_at(policy, 4.0)
    assert counts == capabilities_of(create_mechanism(policy)).divides_among_tenants
