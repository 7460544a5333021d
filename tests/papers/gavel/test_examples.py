"""The worked examples of the Gavel paper (§3.1, §4.1, §4.3), with exact values."""

import numpy as np
import pytest

from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import snapshot_of
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.tree import ROOT
from fairlead.policies._levels.hierarchy import ClassTree, TreePath
from fairlead.policies.base import effective_speed
from fairlead.policies.hierarchical import Hierarchical
from fairlead.policies.max_min import MaxMin
from fairlead.solve.max_min.problem import MaxMinProblem
from fairlead.solve.solver import solve_max_min


def _instance(cluster: dict[str, int], rows: list[tuple[float, ...]]) -> Instance:
    jobs = tuple(
        InstanceJob(id=str(i), speeds=dict(zip(cluster, row, strict=True)))
        for i, row in enumerate(rows)
    )
    return Instance(Cluster.of(cluster), jobs)


def test_section_4_1_allocation_agrees_with_the_paper() -> None:
    """§4.1: printed as 0.45, 0 / 0.45, 0.09 / 0.09, 0.91."""
    instance = _instance({"v100": 1, "k80": 1}, [(40, 10), (12, 4), (100, 50)])
    allocation = MaxMin().allocate(snapshot_of(instance))
    exact = np.array([[5, 0], [5, 1], [1, 10]]) / 11
    np.testing.assert_allclose(allocation.share, exact, atol=1e-9)
    assert allocation.objective == pytest.approx(8 / 11, rel=1e-9)


def test_section_4_1_beats_the_isolated_split_by_about_10_percent() -> None:
    """§4.1: "about 10 % higher throughput" than 1/n of each accelerator: exactly 8/11 over 2/3."""
    instance = _instance({"v100": 1, "k80": 1}, [(40, 10), (12, 4), (100, 50)])
    snap = snapshot_of(instance)
    allocation = MaxMin().allocate(snap)
    isolated = np.array([40 + 10, 12 + 4, 100 + 50]) / 3
    np.testing.assert_allclose(effective_speed(snap, allocation) / isolated, 12 / 11, rtol=1e-9)


@pytest.mark.parametrize(
    ("devices", "first_level"),
    [(4, (1, 1 / 3, 1 / 3, 1 / 3)), (3, (1, 2 / 3, 2 / 3, 2 / 3))],
)
def test_section_4_3_fills_level_by_level(devices: int, first_level: tuple[float, ...]) -> None:
    """§4.3: four equal jobs with weights 3, 1, 1, 1; the first one saturates first."""
    weight = np.array([3.0, 1.0, 1.0, 1.0])
    problem = MaxMinProblem(
        gain=(1 / weight)[:, None],
        size=np.ones(4),
        count=np.ones(4),
        capacity=np.array([float(devices)]),
    )
    solution = solve_max_min(problem)
    if devices == 4:
        # At water level 1/3 job 0 has all of a device; the others follow until they do too.
        np.testing.assert_allclose(solution.filled(1 / 3) * weight, first_level, atol=1e-9)
        np.testing.assert_allclose(solution.level * weight, 1.0, atol=1e-9)
    else:
        np.testing.assert_allclose(solution.level * weight, first_level, atol=1e-9)


def test_section_3_1_weight_two_is_entitled_to_twice_the_speed() -> None:
    cluster = Cluster.of({"v100": 1})
    jobs = (
        InstanceJob(id="a", speeds={"v100": 3.0}, weight=2.0),
        InstanceJob(id="b", speeds={"v100": 5.0}),
    )
    share = MaxMin().allocate(snapshot_of(Instance(cluster, jobs))).share
    np.testing.assert_allclose(share[:, 0], [2 / 3, 1 / 3], atol=1e-9)


@pytest.mark.parametrize(("gpus", "first"), [(4, 1 / 3), (3, 2 / 3)])
def test_section_4_3_hierarchy_raises_by_weight_and_then_redistributes(
    gpus: int, first: float
) -> None:
    """§4.3: job weights 3, 1, 1, 1 inside one entity; at its cap job 1 passes its weight on.

    With four GPUs the first level is 1, 1/3, 1/3, 1/3 and all end at 1; with three GPUs the
    redistribution ends at 1, 2/3, 2/3, 2/3.
    """
    names = ["1", "2", "3", "4"]
    jobs = tuple(
        InstanceJob(id=name, speeds={"gpu": 5.0}, weight=weight, tenant="entity")
        for name, weight in zip(names, (3.0, 1.0, 1.0, 1.0), strict=True)
    )
    snap = snapshot_of(Instance(Cluster.of({"gpu": gpus}), jobs))
    share = Hierarchical().allocate(snap).share[:, 0]
    rest = 1.0 if gpus == 4 else first
    np.testing.assert_allclose(share, [1.0, rest, rest, rest], atol=1e-9)

    tree = ClassTree(
        parent=np.array([ROOT, 0, 0, 0, 0]),
        weight=np.array([1.0, 3.0, 1.0, 1.0, 1.0]),
        arrival_order=np.arange(5),
        fifo=np.array([False]),
        members=np.ones(4),
    )
    path = TreePath(tree, np.ones(4))
    np.testing.assert_allclose(path.level(2.0), [1.0, 1 / 3, 1 / 3, 1 / 3])  # job 1 at its cap
    np.testing.assert_allclose(path.rate(2.0), [0.0, 1 / 3, 1 / 3, 1 / 3])  # has handed on


def test_figure_6_weights_go_to_the_next_in_the_queue_or_to_all() -> None:
    """Figure 6: weights 1 and 2; jobs 1–3 of the first share alike, 4 and 5 queue up.

    On two GPUs the queue's first job has a whole one and its second the rest of the entity's
    four thirds; the three others share two thirds.
    """
    tenants = (Tenant("product", 1.0), Tenant("research", 2.0, inner="fifo"))
    jobs = tuple(
        InstanceJob(id=str(i), speeds={"gpu": 1.0}, tenant="product" if i <= 3 else "research")
        for i in range(1, 6)
    )
    snap = snapshot_of(Instance(Cluster.of({"gpu": 2}), jobs, tenants))
    share = Hierarchical().allocate(snap).share[:, 0]
    np.testing.assert_allclose(share, [2 / 9, 2 / 9, 2 / 9, 1.0, 1 / 3], atol=1e-9)
