"""Virtual tenants and their speedups."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.support.tenant_instances import tenants

from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.tree import TenantTree
from fairlead.policies.base import WarmStart
from fairlead.policies.oef import Oef
from fairlead.policies.oef_cooperative import OefCooperative
from fairlead.policies.rules.tenant_rows import tenant_table
from fairlead.policies.tenant_max_min import TenantMaxMin
from fairlead.policies.trading import Trading


def snap(cluster: dict[str, int], jobs: Sequence[InstanceJob], *listed: Tenant) -> Snapshot:
    return snapshot_of(Instance(Cluster.of(cluster), tuple(jobs), listed))


def job(name: str, tenant: str, *speeds: float, gang: int = 1, weight: float = 1.0) -> InstanceJob:
    by_name = {f"gpu{j + 1}": speed for j, speed in enumerate(speeds)}
    return InstanceJob(id=name, tenant=tenant, speeds=by_name, gang=gang, weight=weight)


def test_speed_is_counted_per_device_relative_to_the_slowest_accelerator() -> None:
    rows = [job("a", "x", 6.0, 24.0, gang=2), job("b", "y", 0.5, 1.5)]
    table = tenant_table(snap({"gpu1": 2, "gpu2": 2}, rows))
    np.testing.assert_array_equal(table.gain, [[1, 4], [1, 3]])


def test_the_slowest_accelerator_is_slowest_for_the_greatest_weight() -> None:
    rows = [job("a", "x", 4.0, 1.0), job("b", "y", 1.0, 3.0), job("c", "z", 1.0, 5.0)]
    table = tenant_table(snap({"gpu1": 1, "gpu2": 1}, rows))
    np.testing.assert_array_equal(table.gain, [[1, 0.25], [1, 3], [1, 5]])
    heavy = tenant_table(snap({"gpu1": 1, "gpu2": 1}, rows, Tenant("x", weight=3)))
    assert heavy.gain == pytest.approx(np.array([[4, 1], [1 / 3, 1], [1 / 5, 1]]))


def test_a_tenant_that_cannot_run_on_the_slowest_accelerator_gets_the_typical_speedup() -> None:
    """gpu2 is 2 and 8 times as fast for the others: 4 by their geometric mean."""
    rows = [
        job("a", "x", 1.0, 2.0, 6.0),
        job("b", "y", 1.0, 8.0, 9.0),
        job("c", "z", 0, 5.0, 10.0),
    ]
    table = tenant_table(snap({"gpu1": 1, "gpu2": 1, "gpu3": 1}, rows))
    np.testing.assert_allclose(table.gain, [[1, 2, 6], [1, 8, 9], [0, 4, 8]])


def test_without_a_typical_speedup_its_slowest_accelerator_counts_as_1() -> None:
    rows = [job("a", "x", 3.0), job("b", "y", 3.0), job("c", "z", 0, 5.0)]
    table = tenant_table(snap({"gpu1": 1, "gpu2": 1}, rows))
    np.testing.assert_array_equal(table.gain, [[1, 0], [1, 0], [0, 1]])


def test_alike_jobs_of_a_tenant_are_one_virtual_tenant_and_others_share_its_weight() -> None:
    rows = [
        job("a", "x", 1.0, 2.0),
        job("b", "x", 10.0, 20.0),
        job("c", "x", 1.0, 3.0, weight=3.0),
        job("d", "y", 1.0, 2.0),
    ]
    table = tenant_table(snap({"gpu1": 1, "gpu2": 1}, rows, Tenant("x", weight=2)))
    np.testing.assert_array_equal(table.tenant, [0, 0, 1])
    np.testing.assert_array_equal(table.row_of_job, [0, 0, 1, 2])
    np.testing.assert_allclose(table.weight, [0.5, 1.5, 1.0])


def test_tables_that_are_kept_equal_those_computed_anew() -> None:
    rows = [job("a", "x", 1, 2), job("b", "x", 1, 2, weight=0.1), job("c", "y", 3, 1, gang=2)]
    warm = WarmStart()
    for weight in (1.0, 0.1):
        jobs = [replace(row, weight=min(row.weight, weight)) for row in rows]
        for chosen in ([0], [0, 1], [0, 1, 2], [0, 0, 1], [0], [2, 1, 1], [0, 1]):
            named = [replace(jobs[i], id=str(n)) for n, i in enumerate(chosen)]
            for devices in (2, 1):
                whole = snap({"gpu1": devices, "gpu2": 2}, named, Tenant("x"), Tenant("y"))
                kept, fresh = tenant_table(whole, warm), tenant_table(whole)
                for part in ("tenant", "weight", "gain", "capacity", "row_of_job"):
                    np.testing.assert_array_equal(getattr(kept, part), getattr(fresh, part))


def test_gangs_above_the_devices_that_are_up_run_elsewhere_or_not_at_all() -> None:
    rows = [job("a", "x", 4.0, 16.0, gang=4), job("b", "y", 1.0, 5.0)]
    whole = snap({"gpu1": 4, "gpu2": 2}, rows)
    table = tenant_table(whole)
    np.testing.assert_array_equal(table.gain, [[1, 0], [1, 5]])
    less = Snapshot(
        **{
            name: getattr(whole, name)
            for name in Snapshot.__dataclass_fields__
            if name != "capacity"
        },
        capacity=np.array([3, 2]),
    )
    table = tenant_table(less)
    np.testing.assert_array_equal(table.row_of_job, [-1, 0])
    np.testing.assert_allclose(Oef().allocate(less).share, [[0, 0], [3, 2]])


def test_tenants_inside_others_divide_their_weight() -> None:
    listed = [
        Tenant("org", weight=4),
        Tenant("a", weight=1, parent="org"),
        Tenant("b", weight=2, parent="org"),
        Tenant("b1", weight=5, parent="b"),
        Tenant("idle", weight=9, parent="org"),
        Tenant("alone", weight=3),
    ]
    active = np.array([True, True, False, True, False, True])
    # org's own jobs count as one more tenant inside it, of weight 1.
    np.testing.assert_allclose(TenantTree(listed).entitlements(active), [1, 1, 0, 2, 0, 3])


def test_weights_of_tenants_inside_others_reach_the_allocation() -> None:
    rows = [job("a", "a", 1.0), job("b", "b", 1.0), job("c", "c", 1.0)]
    listed = Tenant("a", parent="org"), Tenant("b", weight=3, parent="org"), Tenant("c")
    allocation = Oef().allocate(snap({"gpu1": 8}, rows, *listed))
    np.testing.assert_allclose(allocation.share[:, 0], [1, 3, 4, 0])


@pytest.mark.parametrize("policy", [Oef(), OefCooperative(), TenantMaxMin(), Trading()])
def test_tenants_without_jobs_get_nothing(
    policy: Oef | OefCooperative | TenantMaxMin | Trading,
) -> None:
    rows = [job("a", "x", 1.0, 2.0)]
    allocation = policy.allocate(snap({"gpu1": 1, "gpu2": 3}, rows, Tenant("idle", weight=7)))
    np.testing.assert_allclose(allocation.share, [[0, 0], [1, 3]])
    assert allocation.speed == pytest.approx([0, 7])
    empty = policy.allocate(snap({"gpu1": 1}, [], Tenant("idle")))
    assert empty.share.tolist() == [[0.0]]
    assert empty.objective is None
    assert empty.prove is None


@pytest.mark.parametrize(
    "policy", [Oef(), OefCooperative(), TenantMaxMin(), TenantMaxMin(capped=True)]
)
@pytest.mark.parametrize("room", [[0.0, 0.0], [0.0, 2.0]])
def test_tenants_get_no_share_of_absent_devices(
    policy: Oef | OefCooperative | TenantMaxMin, room: list[float]
) -> None:
    """The first tenant runs on the first accelerator only, without devices to allocate."""
    whole = tenants([(1, 0), (1, 5)], {"gpu1": 4, "gpu2": 4})
    allocation = policy.allocate(whole.subset(np.array([0, 1]), np.array(room)))
    assert allocation.share[0].tolist() == [0.0, 0.0]
    assert allocation.share[1, 0] == 0.0
    assert allocation.share[1, 1] <= room[1]


@pytest.mark.parametrize("policy", [Oef(), OefCooperative(), TenantMaxMin(), Trading()])
def test_taken_devices_are_not_allocated(
    policy: Oef | OefCooperative | TenantMaxMin | Trading,
) -> None:
    whole = tenants([(1, 2), (1, 5), (1, 3)], {"gpu1": 4, "gpu2": 4})
    some = whole.subset(np.array([0, 1]), np.array([1.5, 0.0]))
    allocation = policy.allocate(some)
    np.testing.assert_allclose(allocation.share.sum(axis=0), [1.5, 0.0])
    np.testing.assert_allclose(allocation.share[:, 0], [0.75, 0.75, 0.0])
