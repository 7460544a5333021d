"""The levels along the path of a hierarchy."""

import numpy as np
import pytest

from fairlead.model.tenants.tree import ROOT
from fairlead.policies._levels.hierarchy import ClassTree, TreePath


def _tree(
    parent: list[int],
    weight: list[float],
    fifo: list[bool],
    members: list[float] | None = None,
) -> ClassTree:
    """Return a tree of tenants, then one class for each further parent, in order of arrival."""
    classes = len(parent) - len(fifo)
    return ClassTree(
        np.array(parent),
        np.array(weight),
        np.arange(len(parent)),
        np.array(fifo),
        np.ones(classes) if members is None else np.array(members),
    )


def test_jobs_of_a_fair_tenant_rise_by_weight_and_pass_on_the_surplus() -> None:
    path = TreePath(_tree([ROOT, 0, 0], [3.0, 2.0, 1.0], [False]), np.array([1.0, 5.0]))
    np.testing.assert_allclose(path.level(0.3), [0.6, 0.3])
    np.testing.assert_allclose(path.level(1.0), [1.0, 2.0])  # 2 of 3, but no more than the cap
    np.testing.assert_allclose(path.rate(0.3), [2.0, 1.0])
    np.testing.assert_allclose(path.rate(1.0), [0.0, 3.0])
    assert path.top == pytest.approx(2.0)
    np.testing.assert_allclose(path.level(7.0), [1.0, 5.0])
    np.testing.assert_allclose(path.rate(7.0), [0.0, 0.0])


def test_a_queue_is_served_in_order() -> None:
    path = TreePath(_tree([ROOT, 0, 0], [1.0, 1.0, 9.0], [True]), np.array([2.0, 3.0]))
    np.testing.assert_allclose(path.level(1.5), [1.5, 0.0])
    np.testing.assert_allclose(path.rate(1.5), [1.0, 0.0])
    np.testing.assert_allclose(path.level(2.5), [2.0, 0.5])
    np.testing.assert_allclose(path.rate(2.0), [0.0, 1.0])


def test_a_stopped_job_passes_its_part_to_its_siblings_only() -> None:
    tree = _tree([ROOT, ROOT, 0, 0, 1], [2.0, 1.0, 1.0, 1.0, 1.0], [False, False])
    path = TreePath(tree, np.array([9.0, 9.0, 9.0]))
    before = path.level(1.0)
    np.testing.assert_allclose(before, [1.0, 1.0, 1.0])
    stopped = path.within(np.array([1.0, 9.0, 9.0]))
    np.testing.assert_allclose(stopped.level(1.0), before)
    np.testing.assert_allclose(stopped.rate(1.0), [0.0, 2.0, 1.0])


def test_a_class_counts_with_the_number_of_its_members() -> None:
    apart = TreePath(_tree([ROOT, 0, 0, 0], [1.0, 2.0, 2.0, 1.0], [False]), np.full(3, 4.0))
    merged = TreePath(_tree([ROOT, 0, 0], [1.0, 4.0, 1.0], [False], [2.0, 1.0]), np.full(2, 4.0))
    for theta in (0.5, 3.0, 9.0, 20.0):
        np.testing.assert_allclose(merged.level(theta), apart.level(theta)[[0, 2]])
        np.testing.assert_allclose(merged.rate(theta), apart.rate(theta)[[0, 2]])


def _random_tree(rng: np.random.Generator) -> tuple[ClassTree, np.ndarray]:
    tenants, classes = int(rng.integers(1, 8)), int(rng.integers(1, 15))
    parent = [
        ROOT if i == 0 or rng.random() < 0.4 else int(rng.integers(i)) for i in range(tenants)
    ]
    home = rng.integers(tenants, size=classes).tolist()
    tree = ClassTree(
        np.array(parent + home),
        rng.choice([0.5, 1.0, 2.0], tenants + classes),
        rng.permutation(tenants + classes),
        rng.random(tenants) < 0.4,
        rng.integers(1, 4, classes).astype(float),
    )
    return tree, rng.choice([0.0, 0.5, 1.0, 1.0, 2.7], classes)


def _poured(tree: ClassTree, cap: np.ndarray, theta: float) -> np.ndarray:
    """Distribute the water node by node, with λ by bisection."""
    tenants = tree.tenants
    limit = np.concatenate([np.zeros(tenants), cap * tree.members])
    level = np.zeros(len(limit))

    def most(node: int) -> float:
        if node >= tenants:
            return float(limit[node])
        return sum((most(int(c)) for c in np.flatnonzero(tree.parent == node)), 0.0)

    def pour(node: int, water: float) -> None:
        level[node] = water
        children = np.flatnonzero(tree.parent == node).tolist() if node < tenants else []
        if node < tenants and tree.fifo[node]:
            for child in sorted(children, key=lambda c: tree.arrival_order[c]):
                part = min(water, most(child))
                pour(child, part)
                water -= part
            return
        low, high = 0.0, 1e3
        for _ in range(100):
            middle = (low + high) / 2
            total = sum(min(most(c), tree.weight[c] * middle) for c in children)
            low, high = (middle, high) if total < water else (low, middle)
        for child in children:
            pour(child, min(most(child), tree.weight[child] * high))

    for node in np.flatnonzero(tree.parent == ROOT).tolist():
        pour(node, min(most(node), tree.weight[node] * theta))
    return level[tenants:] / tree.members


def test_levels_agree_with_a_node_by_node_distribution() -> None:
    rng = np.random.default_rng(5)
    for _ in range(60):
        tree, cap = _random_tree(rng)
        path = TreePath(tree, cap)
        for theta in (0.0, 0.3, 1.1, path.top * 0.7, path.top):
            np.testing.assert_allclose(path.level(theta), _poured(tree, cap, theta), atol=1e-9)


def test_rates_are_the_growth_of_levels_just_above_theta() -> None:
    rng = np.random.default_rng(6)
    for _ in range(100):
        tree, cap = _random_tree(rng)
        path = TreePath(tree, cap)
        for theta in rng.uniform(0.0, 1.1 * path.top + 0.1, 4).tolist():
            growth = (path.level(theta + 1e-7) - path.level(theta)) / 1e-7
            np.testing.assert_allclose(path.rate(theta), growth, atol=1e-5)


def test_stopping_a_class_changes_no_level_up_to_then() -> None:
    rng = np.random.default_rng(7)
    for _ in range(200):
        tree, cap = _random_tree(rng)
        path = TreePath(tree, cap)
        theta = float(rng.uniform(0.0, path.top))
        level = path.level(theta)
        bound = np.where(rng.random(len(cap)) < 0.4, level, cap)
        stopped = path.within(bound)
        np.testing.assert_allclose(stopped.level(theta), level, atol=1e-12)
        assert (stopped.level(stopped.top) <= bound + 1e-12).all()
