"""Devices of tenants as time shares of their jobs."""

from typing import Any

import numpy as np
import pytest
from tests.support.tenant_instances import random_cluster, random_table

from fairlead.mechanisms._rounds.tenant_jobs import TenantJobShares, job_rows
from fairlead.mechanisms.factory import create_mechanism
from fairlead.mechanisms.tenants import Tenants
from fairlead.model.cluster import Cluster
from fairlead.model.errors import UsageError
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.job import Job
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.model.tenants.tenant import Tenant
from fairlead.policies.max_min import MaxMin
from fairlead.policies.oef import Oef
from fairlead.policies.oef_cooperative import OefCooperative
from fairlead.policies.trading import Trading
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario

POLICIES = [Oef(), OefCooperative(), Trading()]


def crowd(seed: int, jobs_each: int) -> Snapshot:
    """Tenants with a few jobs each, of one to three workloads and of gangs that fit."""
    rng = np.random.default_rng(seed)
    table = random_table(rng)
    cluster = random_cluster(rng, table.shape[1])
    jobs = [
        InstanceJob(
            id=f"u{i}-{number}",
            tenant=f"u{i}",
            speeds=dict(
                zip(cluster, table[i] * (1 + number % 3 * np.arange(table.shape[1])), strict=True)
            ),
            gang=int(rng.integers(1, 1 + max(cluster.values()))),
            weight=float(rng.choice([1.0, 1.0, 2.0])),
            elapsed_s=float(rng.integers(100)),
        )
        for i in range(len(table))
        for number in range(int(rng.integers(1, 1 + jobs_each)))
    ]
    inner = rng.choice(["fairness", "fifo"], len(table)).tolist()
    listed = tuple(Tenant(f"u{i}", inner=inner[i]) for i in range(len(table)))
    return snapshot_of(Instance(Cluster.of(cluster), tuple(jobs), listed))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("jobs_each", [1, 3, 12])
def test_shares_fit_and_no_device_is_idle_that_a_job_could_use(
    policy: Oef | OefCooperative | Trading, jobs_each: int
) -> None:
    for seed in range(60):
        snap = crowd(seed, jobs_each)
        share = TenantJobShares(policy).allocate(snap).share
        time = share.sum(axis=1)
        assert (share >= 0).all()
        assert (time <= 1 + 1e-9).all()
        can = (snap.speed > 0) & (snap.gang[:, None] <= snap.capacity)
        assert (share[~can] == 0).all()
        used = (share * snap.gang[:, None]).sum(axis=0)
        assert (used <= snap.capacity * (1 + 1e-9)).all()
        idle = used < snap.capacity * (1 - 1e-6)
        waits = time < 1 - 1e-6
        assert not (can & waits[:, None] & idle).any()


@pytest.mark.parametrize("policy", POLICIES)
def test_tenants_have_the_policys_devices_where_demand_allows(
    policy: Oef | OefCooperative | Trading,
) -> None:
    """Forty jobs of every workload hold whatever devices a tenant is given."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        table, owner = random_table(rng), rng.integers(0, 3, 6)
        cluster = random_cluster(rng, table.shape[1])
        jobs = tuple(
            InstanceJob(
                id=f"{i}-{number}",
                tenant=f"u{owner[i]}",
                speeds=dict(zip(cluster, row, strict=True)),
            )
            for i, row in enumerate(table)
            for number in range(40)
        )
        snap = snapshot_of(Instance(Cluster.of(cluster), jobs))
        share = TenantJobShares(policy).allocate(snap).share
        wanted = policy.allocate(snap)
        devices = np.zeros_like(wanted.share)
        np.add.at(devices, snap.tenant, share * snap.gang[:, None])
        np.testing.assert_allclose(devices, wanted.share, atol=1e-6)


def jobs_of_two(first: str) -> Snapshot:
    """Tenant a with three gangs of 2 on gpu1, tenant b with one job that gains more from gpu2."""
    jobs = [
        InstanceJob(
            id=f"a{i}", tenant="a", gang=2, speeds={"gpu1": 2.0, "gpu2": 3.0}, elapsed_s=10.0 * i
        )
        for i in range(3)
    ]
    jobs.append(InstanceJob(id="b", tenant="b", speeds={"gpu1": 1.0, "gpu2": 3.0}))
    cluster = Cluster.of({"gpu1": 4, "gpu2": 4})
    return snapshot_of(Instance(cluster, tuple(jobs), (Tenant("a", inner=first), Tenant("b"))))


def test_what_a_tenant_cannot_use_goes_to_the_others() -> None:
    """b is entitled to half of all devices and has one job of one device."""
    share = TenantJobShares(Oef()).allocate(jobs_of_two("fairness")).share
    np.testing.assert_allclose(share[3], [0, 1], atol=1e-9)
    np.testing.assert_allclose((2 * share[:3]).sum(axis=0), [3, 3], atol=1e-6)
    np.testing.assert_allclose(share[:3], 0.5, atol=1e-6)


def test_first_come_jobs_have_all_their_time_first_on_the_fastest_devices() -> None:
    """a2 came first; gpu2 is faster, and a's jobs hold three of its devices."""
    share = TenantJobShares(Oef()).allocate(jobs_of_two("fifo")).share
    assert share[:3] == pytest.approx(np.array([[1, 0], [0.5, 0.5], [0, 1]]), abs=1e-6)


def test_jobs_have_time_in_proportion_to_their_weights_up_to_all_of_it() -> None:
    jobs = tuple(
        InstanceJob(id=str(i), speeds={"gpu1": 1.0}, weight=weight)
        for i, weight in enumerate([4.0, 1.0, 1.0])
    )
    snap = snapshot_of(Instance(Cluster.of({"gpu1": 2}), jobs))
    share = TenantJobShares(Oef()).allocate(snap).share
    np.testing.assert_allclose(share[:, 0], [1.0, 0.5, 0.5])


def test_policies_with_rows_of_jobs_are_refused() -> None:
    with pytest.raises(UsageError, match="leave out --mechanism"):
        Tenants(MaxMin())


def finish_times(policy: str) -> Any:
    """Run 8 jobs of a and 4 of b, of equal normalised work in all, on 2 K80 and 2 V100."""
    rows = {"m": (1.0, 2.0), "r": (1.0, 4.0)}
    speeds = SpeedTable(
        {
            SpeedKey(workload, 1, accelerator): speed
            for workload, row in rows.items()
            for accelerator, speed in zip(("k80", "v100"), row, strict=True)
        }
    )
    jobs = tuple(
        Job(id=f"{tenant}{i}", workload=workload, total_steps=160_000 / count, tenant=tenant)
        for tenant, workload, count in (("a", "m", 8), ("b", "r", 4))
        for i in range(count)
    )
    cluster = Cluster.of({"k80": 2, "v100": 2})
    record, _ = simulate(
        Scenario(cluster=cluster, jobs=jobs, speeds=speeds, mechanism=create_mechanism(policy))
    )
    return record.finished_at


def test_rounds_give_tenants_the_same_normalised_throughput_under_oef() -> None:
    """Two K80 and one V100 for a, one V100 for b: 4 each, so that both need 40,000 s."""
    finished = finish_times("oef")
    assert finished[:8].max() == pytest.approx(40_000, rel=0.04)
    assert finished[8:].max() == pytest.approx(40_000, rel=0.04)


@pytest.mark.parametrize("policy", ["oef-cooperative", "tenant-max-min:capped", "trading"])
def test_simulations_finish(policy: str) -> None:
    assert np.isfinite(finish_times(policy)).all()


def test_jobs_of_a_higher_priority_come_first_and_leave_the_rest() -> None:
    """Priorities count the devices that jobs can use, not their tenant's entitlement."""
    jobs = tuple(
        InstanceJob(id=name, tenant=name, speeds={"gpu1": 1.0}, priority=priority)
        for name, priority in (("a", 0), ("b", 1))
    )
    snap = snapshot_of(Instance(Cluster.of({"gpu1": 4}), jobs))
    mechanism = create_mechanism("oef", "tenants")
    assert isinstance(mechanism, Tenants)
    share = job_rows(mechanism.policy).allocate(snap).share
    np.testing.assert_allclose(share, 1.0)
