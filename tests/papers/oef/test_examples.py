"""The worked examples of the OEF paper (§2.4, §3.1, §4.2), with exact values."""

import numpy as np
import pytest
from tests.support.tenant_instances import tenants

from fairlead.policies.oef import Oef
from fairlead.policies.oef_cooperative import OefCooperative
from fairlead.policies.tenant_max_min import TenantMaxMin

THREE = [(1, 2), (1, 3), (1, 4)]


def test_section_2_4_gavel_with_at_most_one_device_per_tenant() -> None:
    """§2.4: printed as 0.91, 0.09 / 0.09, 0.45 / 0, 0.45 and 1.09, 1.44, 1.8."""
    allocation = TenantMaxMin(capped=True).allocate(tenants(THREE))
    exact = np.array([[10, 1], [1, 5], [0, 5]]) / 11
    np.testing.assert_allclose(allocation.share, exact, atol=1e-9)
    assert allocation.speed == pytest.approx([12 / 11, 16 / 11, 20 / 11], rel=1e-9)


def test_section_2_4_gavel_reaches_a_higher_ratio_without_that_limit() -> None:
    """So "not Pareto efficient" compares the capped allocation with those outside its set."""
    allocation = TenantMaxMin().allocate(tenants(THREE))
    split = np.array([3, 4, 5]) / 3
    assert allocation.speed is not None
    np.testing.assert_allclose(allocation.speed / split, 54 / 49, rtol=1e-9)
    assert allocation.objective == pytest.approx(54 / 49, rel=1e-9)


def test_section_2_4_cooperative_total_is_that_of_the_papers_better_allocation() -> None:
    """§2.4, expression 2: E* = (1, 1.5, 2) is efficient and envy-free; 4.5 in all."""
    allocation = OefCooperative().allocate(tenants(THREE))
    assert allocation.objective == pytest.approx(4.5, rel=1e-9)


@pytest.mark.parametrize(
    ("reported", "share", "total"),
    [
        ((1, 2), [[1, 0.25], [0, 0.75]], 5.25),
        ((1, 4), [[1, 0.375], [0, 0.625]], 4.875),
    ],
)
def test_section_3_1_envy_freeness_invites_a_misreport(
    reported: tuple[float, float], share: list[list[float]], total: float
) -> None:
    """§3.1: u1 reports 4 instead of 2; the total falls by 7.14 % (8 % in the paper)."""
    allocation = OefCooperative().allocate(tenants([reported, (1, 5)]))
    np.testing.assert_allclose(allocation.share, share, atol=1e-9)
    truth = np.array([(1, 2), (1, 5)])
    assert (truth * allocation.share).sum() == pytest.approx(total, rel=1e-9)
    assert (truth * allocation.share).sum(axis=1)[0] == pytest.approx(
        {2: 1.5, 4: 1.75}[int(reported[1])], rel=1e-9
    )


@pytest.mark.parametrize(
    ("fast", "exact"), [(2, [[1, 0.25], [0, 0.75]]), (3, [[1, 1 / 3], [0, 2 / 3]])]
)
def test_figure_2_theorem_3_2(fast: float, exact: list[list[float]]) -> None:
    allocation = OefCooperative().allocate(tenants([(1, fast), (1, 4)]))
    np.testing.assert_allclose(allocation.share, exact, atol=1e-9)


def test_section_4_2_3_weight_two_is_two_rows() -> None:
    """§4.2.3: every row reaches 5/3, so that u2 has 10/3."""
    allocation = Oef().allocate(tenants([(1, 2), (1, 5)], weights=[1, 2]))
    np.testing.assert_allclose(allocation.share, [[1, 1 / 3], [0, 2 / 3]], atol=1e-9)
    assert allocation.speed == pytest.approx([5 / 3, 10 / 3], rel=1e-9)
    assert allocation.objective == pytest.approx(5 / 3, rel=1e-9)


def test_section_4_2_4_two_workloads_share_their_tenants_weight() -> None:
    """§4.2.4: fast shares printed as 0.11, 0.41, 0.24, 0.24; 45/37 for every row."""
    snap = tenants([(1, 2), (1, 3), (1, 5)], owner=[0, 0, 1])
    division = Oef().divide(snap)
    np.testing.assert_allclose(division.table.weight, [0.5, 0.5, 1.0])
    np.testing.assert_allclose(division.devices[:, 0], [1, 0, 0], atol=1e-9)
    np.testing.assert_allclose(division.devices[:, 1], [4 / 37, 15 / 37, 18 / 37], atol=1e-9)
    np.testing.assert_allclose(division.throughput, [45 / 37, 45 / 37, 90 / 37], rtol=1e-9)
    assert Oef().allocate(snap).speed == pytest.approx([90 / 37, 90 / 37], rel=1e-9)


def test_under_reporting_pays_contrary_to_theorem_5_4() -> None:
    """The theorem covers reports above the truth; u2's 2.5 for 5 brings it 55.6 %."""
    honest = Oef().allocate(tenants([(1, 2), (1, 5)]))
    lie = Oef().allocate(tenants([(1, 2), (1, 2.5)]))
    assert honest.speed == pytest.approx([15 / 7, 15 / 7], rel=1e-9)
    assert (lie.share[1] * (1, 5)).sum() == pytest.approx(10 / 3, rel=1e-9)


def test_cooperative_optimum_need_not_be_pareto_efficient_contrary_to_theorem_5_3() -> None:
    """The optimum (8/3, 4, 31/6) is dominated by (8/3, 4, 16/3), in which a tenant envies."""
    table = np.array([[1, 2, 5], [1, 4, 6], [1, 5, 8]])
    allocation = OefCooperative().allocate(tenants(table.tolist()))
    assert allocation.speed == pytest.approx([8 / 3, 4, 31 / 6], rel=1e-9)
    assert allocation.prove is not None
    assert allocation.prove().bound == pytest.approx(71 / 6, rel=1e-9)
    better = np.array([[1, 0, 1 / 3], [0, 1, 0], [0, 0, 2 / 3]])
    np.testing.assert_allclose(better.sum(axis=0), 1.0)
    value = table @ better.T
    np.testing.assert_allclose(value.diagonal(), [8 / 3, 4, 16 / 3])
    assert value[0, 2] > value[0, 0] + 0.6
