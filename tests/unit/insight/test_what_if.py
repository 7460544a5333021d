"""Consequences of other policies, weights, quotas and devices."""

import pytest

from fairlead.insight.what_if import (
    Outcome,
    TenantProposal,
    outcome,
    proposed_instance,
    trade_text,
)
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.tenants.tenant import Tenant
from fairlead.policies.rules.priority import create_policy

INSTANCE = Instance(
    Cluster.of({"fast": 2, "slow": 2}),
    (
        InstanceJob(id="a1", tenant="a", speeds={"fast": 4.0, "slow": 1.0}),
        InstanceJob(id="a2", tenant="a", speeds={"fast": 4.0, "slow": 1.0}),
        InstanceJob(id="b1", tenant="b", speeds={"fast": 2.0, "slow": 1.0}),
        InstanceJob(id="b2", tenant="b", speeds={"fast": 2.0, "slow": 1.0}, gang=2),
    ),
    (Tenant("a"), Tenant("b")),
)


def under(
    policy: str, *tenants: TenantProposal, instance: Instance = INSTANCE, **devices: int
) -> Outcome:
    changed, stranded = proposed_instance(instance, tenants, devices)
    assert stranded == []
    return outcome(changed, create_policy(policy), instance.cluster)


def test_more_weight_of_a_tenant_takes_devices_of_the_other() -> None:
    now = under("oef")
    then = under("oef", TenantProposal(id="b", weight=4.0))
    assert then.tenant_speed["b"] > now.tenant_speed["b"] + 0.1
    assert then.tenant_speed["a"] < now.tenant_speed["a"] - 0.1
    for each in (now, then):
        held = [devices["fast"] for devices in each.tenant_devices.values()]
        assert sum(held) == pytest.approx(2.0)


def test_speeds_keep_their_unit_when_devices_are_added() -> None:
    now, then = under("max-min"), under("max-min", fast=20, slow=20)
    for job in ("a1", "b1", "b2"):
        assert then.job_speed[job] == pytest.approx(4.0 if job == "a1" else 2.0)
    # Each job of a on a fast device: 4 steps/s over 2.5 on average.
    assert then.tenant_speed["a"] == pytest.approx(2 * 4.0 / 2.5)
    assert all(then.tenant_speed[name] >= now.tenant_speed[name] for name in ("a", "b"))


@pytest.mark.parametrize("policy", ["isolated", "oef"])
def test_policies_for_jobs_and_for_tenants_count_speed_in_the_same_unit(policy: str) -> None:
    jobs = tuple(
        InstanceJob(id=f"{tenant}{i}", tenant=tenant, speeds={"fast": 3.0, "slow": 1.0})
        for tenant in ("a", "b")
        for i in range(2)
    )
    alike = Instance(Cluster.of({"fast": 2, "slow": 2}), jobs, (Tenant("a"), Tenant("b")))
    result = under(policy, instance=alike)
    assert result.tenant_speed == pytest.approx({"a": 2.0, "b": 2.0})


def test_jobs_that_no_longer_fit_are_named_and_others_still_compared() -> None:
    changed, stranded = proposed_instance(INSTANCE, (), {"fast": 1, "slow": 0})
    assert stranded == ["b2"]
    result = outcome(changed, create_policy("max-min"), INSTANCE.cluster)
    assert set(result.job_speed) == {"a1", "a2", "b1"}
    assert set(result.tenant_devices["a"]) == {"fast"}
    by_tenant = outcome(changed, create_policy("oef"), INSTANCE.cluster)
    assert by_tenant.tenant_speed["b"] > 0


def test_an_accelerator_of_which_no_device_is_up_can_return() -> None:
    now, _ = proposed_instance(INSTANCE, (), {"slow": 0})
    assert now.cluster.count_by_name() == {"fast": 2}
    assert under("max-min", instance=now, slow=2).tenant_devices["a"].keys() == {"fast", "slow"}


def test_trades_are_told_in_words() -> None:
    trades = under("trading").trades
    assert trades
    assert trade_text(trades[0]).startswith("a gave ")
    assert trade_text(trades[0]).endswith("fast of b; both gained")


@pytest.mark.parametrize(
    ("tenant", "devices", "problem"),
    [("c", {}, "tenants: no tenant 'c'"), ("a", {"tpu": 1}, "devices: no accelerator 'tpu'")],
)
def test_unknown_names_are_refused(tenant: str, devices: dict[str, int], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        proposed_instance(INSTANCE, [TenantProposal(id=tenant, weight=2.0)], devices)
