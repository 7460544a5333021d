"""Quotas under every policy: guarantees and limits hold, and idle shares are lent."""

import numpy as np
import pytest

from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Accelerator, Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.job import Job
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.model.tenants.tenant import Tenant
from fairlead.policies.rules.priority import create_policy
from fairlead.policies.rules.quotas import Quotas
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario

JOB_ROWS = (
    "max-min",
    "max-min:agnostic",
    "makespan",
    "finish-time",
    "fairlead",
    "hierarchical",
    "hierarchical:inner=fifo",
    "throughput",
    "cost:sum",
)
GREEDY = ("fifo", "sjf")
TENANT_ROWS = ("oef", "oef-cooperative", "tenant-max-min", "trading")
KINDS = ("v100", "k80")


def instance(seed: int, *, gangs: bool = True) -> Instance:
    rng = np.random.default_rng(seed)
    counts = {accelerator: int(rng.integers(2, 6)) for accelerator in KINDS}
    names = ["a", "b", "c"]
    left = dict(counts)
    tenants = []
    for name in names:
        guarantee, limit = {}, {}
        for accelerator in KINDS:
            if left[accelerator] and rng.random() < 0.6:
                guarantee[accelerator] = float(rng.integers(0, left[accelerator] + 1))
                left[accelerator] -= int(guarantee[accelerator])
            if rng.random() < 0.4:
                limit[accelerator] = guarantee.get(accelerator, 0.0) + float(rng.integers(0, 3))
        tenants.append(Tenant(name, guarantee=guarantee, limit=limit))
    jobs = tuple(
        InstanceJob(
            id=f"j{i}",
            tenant=names[int(rng.integers(3))],
            workload=f"w{i}",
            gang=int(rng.integers(1, 3)) if gangs else 1,
            steps_left=float(rng.integers(10, 1000)),
            speeds={
                accelerator: float(rng.uniform(0.5, 4.0))
                for accelerator in KINDS[: int(rng.integers(1, 3))]
            },
        )
        for i in range(int(rng.integers(3, 12)))
    )
    details = {"v100": Accelerator("v100", usd_per_hour=2.0)}
    details["k80"] = Accelerator("k80", usd_per_hour=0.5)
    return Instance(Cluster.of(counts, details=details), jobs, tuple(tenants))


def held(snap: Snapshot, policy: str) -> FloatArray:
    """Return tenants × accelerators → devices held on average."""
    allocation = create_policy(policy).allocate(snap)
    total = np.zeros((len(snap.tenants), len(KINDS)))
    if allocation.rows == "tenants":
        np.add.at(total, allocation.members[:, 0], allocation.share)
        return total
    np.add.at(total, snap.tenant[allocation.members[:, 0]], allocation.share * snap.gang[:, None])
    return total


@pytest.mark.parametrize("policy", [*JOB_ROWS, *GREEDY, *TENANT_ROWS, "isolated"])
def test_limits_hold(policy: str) -> None:
    for seed in range(60):
        snap = snapshot_of(instance(seed))
        quotas = Quotas(snap)
        used = quotas.inside.astype(float) @ held(snap, policy)
        assert (used <= quotas.limit + 1e-6).all(), seed


@pytest.mark.parametrize("policy", JOB_ROWS)
def test_usable_guarantees_are_met(policy: str) -> None:
    binding = 0
    for seed in range(60):
        snap = snapshot_of(instance(seed))
        quotas = Quotas(snap)
        used = quotas.inside.astype(float) @ held(snap, policy)
        assert (used >= quotas.usable_guarantee - 1e-4).all(), seed
        binding += int(
            (np.abs(used - quotas.usable_guarantee) < 1e-4)[quotas.usable_guarantee > 0].sum()
        )
    assert binding > 20  # the guarantees did matter


@pytest.mark.parametrize("policy", TENANT_ROWS)
def test_tenant_rows_meet_guarantees_within_the_devices(policy: str) -> None:
    for seed in range(60):
        snap = snapshot_of(instance(seed, gangs=False))
        quotas = Quotas(snap)
        total = held(snap, policy)
        assert (quotas.inside.astype(float) @ total >= quotas.usable_guarantee - 1e-4).all(), seed
        assert (total.sum(axis=0) <= snap.capacity + 1e-6).all(), seed


@pytest.mark.parametrize("policy", GREEDY)
def test_guaranteed_devices_are_kept_free_for_their_tenant(policy: str) -> None:
    for seed in range(60):
        snap = snapshot_of(instance(seed, gangs=False))
        quotas = Quotas(snap)
        total = held(snap, policy)
        free = snap.capacity - total.sum(axis=0)
        lacking = np.maximum(np.floor(quotas.usable_guarantee + 1e-9) - quotas.inside @ total, 0.0)
        # A tenant below its guarantee runs elsewhere: its guaranteed devices are free.
        assert (lacking.sum(axis=0) <= free + 1e-6).all(), seed


def test_the_usable_guarantee_exceeds_neither_guarantee_nor_demand() -> None:
    for seed in range(200):
        snap = snapshot_of(instance(seed))
        quotas = Quotas(snap)
        demand = np.zeros(len(snap.tenants))
        np.add.at(demand, snap.tenant, snap.gang)
        assert (quotas.usable_guarantee <= quotas.guarantee + 1e-7).all()
        assert (quotas.usable_guarantee.sum(axis=1) <= quotas.inside @ demand + 1e-7).all()


def test_faster_devices_meet_a_guarantee_in_speed() -> None:
    tenants = (
        Tenant("a", guarantee={"k80": 2.0}, guarantee_in="speed"),
        Tenant("b", weight=1.0),
    )
    jobs = tuple(
        InstanceJob(id=f"{t}{i}", tenant=t, workload=t, speeds={"v100": fast, "k80": 1.0})
        for t, fast in (("a", 4.0), ("b", 1.1))
        for i in range(2)
    )
    snap = snapshot_of(Instance(Cluster.of({"v100": 2, "k80": 2}), jobs, tenants))
    by_devices = snapshot_of(
        Instance(
            Cluster.of({"v100": 2, "k80": 2}),
            jobs,
            (Tenant("a", guarantee={"k80": 2.0}), Tenant("b")),
        )
    )
    free = held(snap, "throughput")
    bound = held(by_devices, "throughput")
    assert free[0] == pytest.approx([2.0, 0.0], abs=1e-5)
    assert bound[0] == pytest.approx([0.0, 2.0], abs=1e-5)


def test_quotas_cover_all_tenants_inside() -> None:
    tenants = (
        Tenant("lab", limit={"v100": 2.0}, guarantee={"v100": 2.0}),
        Tenant("one", parent="lab", guarantee={"v100": 1.0}),
        Tenant("two", parent="lab"),
        Tenant("rest"),
    )
    jobs = tuple(
        InstanceJob(id=f"{t}{i}", tenant=t, workload=t, speeds={"v100": 1.0})
        for t, n in (("one", 1), ("two", 2), ("rest", 6))
        for i in range(n)
    )
    snap = snapshot_of(Instance(Cluster.of({"v100": 4}), jobs, tenants))
    total = held(snap, "max-min")[:, 0]
    names = [tenant.id for tenant in snap.tenants]
    share = dict(zip(names, total.tolist(), strict=True))
    assert share["one"] == pytest.approx(1.0, abs=1e-4)
    assert share["one"] + share["two"] == pytest.approx(2.0, abs=1e-4)
    assert share["rest"] == pytest.approx(2.0, abs=1e-4)


def test_a_guarantee_holds_against_higher_priorities() -> None:
    tenants = (Tenant("high", priority=9), Tenant("low", guarantee={"v100": 1.0}))
    jobs = tuple(
        InstanceJob(id=f"{t}{i}", tenant=t, workload=t, speeds={"v100": 1.0})
        for t, n in (("high", 5), ("low", 2))
        for i in range(n)
    )
    snap = snapshot_of(Instance(Cluster.of({"v100": 4}), jobs, tenants))
    assert held(snap, "max-min")[:, 0] == pytest.approx([3.0, 1.0])


def test_idle_shares_are_borrowed_and_reclaimed_at_the_next_round() -> None:
    speeds = SpeedTable({SpeedKey("m", 1, "v100"): 1.0})
    tenants = (Tenant("owner", guarantee={"v100": 3.0}), Tenant("borrower"))
    jobs = tuple(
        Job(id=f"b{i}", workload="m", total_steps=20_000.0, tenant="borrower") for i in range(6)
    ) + tuple(
        Job(id=f"o{i}", workload="m", total_steps=1800.0, tenant="owner", arrival_at=5000.0)
        for i in range(3)
    )
    record, _ = simulate(
        Scenario(
            cluster=Cluster.of({"v100": 4}),
            speeds=speeds,
            jobs=jobs,
            mechanism=create_mechanism("max-min", None, 360.0),
            tenants=tenants,
            intervals=True,
        )
    )
    # Alone, the borrower has all four devices; from the round after the owner's arrival on the
    # owner has its three, so that its jobs take their 1800 s after at most one round of waiting.
    before = record.device_s[:6].sum()
    assert before > 0
    owner = record.finished_at[6:] - 5000.0
    assert (owner <= 1800.0 + 360.0 + 1e-6).all()
    assert (record.started_at[6:] <= 5000.0 + 360.0 + 1e-6).all()
