"""The hierarchy's path: who stands where when the water stands at theta."""

import numpy as np
import pytest

from fairlead.policies._levels.hierarchy import TOP, TenantTree, TreePath


def _tree(
    parent: list[int],
    weight: list[float],
    fifo: list[bool],
    members: list[float] | None = None,
) -> TenantTree:
    """Tenants first, then one class for each further parent; turns in the order given."""
    classes = len(parent) - len(fifo)
    return TenantTree(
        np.array(parent),
        np.array(weight),
        np.arange(len(parent)),
        np.array(fifo),
        np.ones(classes) if members is None else np.array(members),
    )


def test_a_fair_tenants_jobs_rise_by_weight_and_hand_on_what_they_cannot_use() -> None:
    path = TreePath(_tree([TOP, 0, 0], [3.0, 2.0, 1.0], [False]), np.array([1.0, 5.0]))
    np.testing.assert_allclose(path.level(0.3), [0.6, 0.3])
    np.testing.assert_allclose(path.level(1.0), [1.0, 2.0])  # 2 of 3, but no more than the cap
    np.testing.assert_allclose(path.rate(0.3), [2.0, 1.0])
    np.testing.assert_allclose(path.rate(1.0), [0.0, 3.0])
    assert path.top == pytest.approx(2.0)
    np.testing.assert_allclose(path.level(7.0), [1.0, 5.0])
    np.testing.assert_allclose(path.rate(7.0), [0.0, 0.0])


def test_a_queue_is_served_in_turn() -> None:
    path = TreePath(_tree([TOP, 0, 0], [1.0, 1.0, 9.0], [True]), np.array([2.0, 3.0]))
    np.testing.assert_allclose(path.level(1.5), [1.5, 0.0])
    np.testing.assert_allclose(path.rate(1.5), [1.0, 0.0])
    np.testing.assert_allclose(path.level(2.5), [2.0, 0.5])
    np.testing.assert_allclose(path.rate(2.0), [0.0, 1.0])


def test_who_is_stopped_leaves_its_part_to_its_siblings_only() -> None:
    tree = _tree([TOP, TOP, 0, 0, 1], [2.0, 1.0, 1.0, 1.0, 1.0], [False, False])
    path = TreePath(tree, np.array([9.0, 9.0, 9.0]))
    before = path.level(1.0)
    np.testing.assert_allclose(before, [1.0, 1.0, 1.0])
    stopped = path.within(np.array([1.0, 9.0, 9.0]))
    np.testing.assert_allclose(stopped.level(1.0), before)
    np.testing.assert_allclose(stopped.rate(1.0), [0.0, 2.0, 1.0])


def test_members_of_a_class_count_with_their_number() -> None:
    apart = TreePath(_tree([TOP, 0, 0, 0], [1.0, 2.0, 2.0, 1.0], [False]), np.full(3, 4.0))
    merged = TreePath(_tree([TOP, 0, 0], [1.0, 4.0, 1.0], [False], [2.0, 1.0]), np.full(2, 4.0))
    for theta in (0.5, 3.0, 9.0, 20.0):
        np.testing.assert_allclose(merged.level(theta), apart.level(theta)[[0, 2]])
        np.testing.assert_allclose(merged.rate(theta), apart.rate(theta)[[0, 2]])


def _random_tree(rng: np.random.Generator) -> tuple[TenantTree, np.ndarray]:
    tenants, classes = int(rng.integers(1, 8)), int(rng.integers(1, 15))
    parent = [
        TOP if i == 0 or rng.random() < 0.4 else int(rng.integers(i)) for i in range(tenants)
    ]
    home = rng.integers(tenants, size=classes).tolist()
    tree = TenantTree(
        np.array(parent + home),
        rng.choice([0.5, 1.0, 2.0], tenants + classes),
        rng.permutation(tenants + classes),
        rng.random(tenants) < 0.4,
        rng.integers(1, 4, classes).astype(float),
    )
    return tree, rng.choice([0.0, 0.5, 1.0, 1.0, 2.7], classes)


def _poured(tree: TenantTree, cap: np.ndarray, theta: float) -> np.ndarray:
    """Hand the water down node by node, the slow way: λ by bisection."""
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
            for child in sorted(children, key=lambda c: tree.turn[c]):
                given = min(water, most(child))
                pour(child, given)
                water -= given
            return
        low, high = 0.0, 1e3
        for _ in range(100):
            middle = (low + high) / 2
            total = sum(min(most(c), tree.weight[c] * middle) for c in children)
            low, high = (middle, high) if total < water else (low, middle)
        for child in children:
            pour(child, min(most(child), tree.weight[child] * high))

    for node in np.flatnonzero(tree.parent == TOP).tolist():
        pour(node, min(most(node), tree.weight[node] * theta))
    return level[tenants:] / tree.members


def test_levels_are_those_of_handing_down_node_by_node() -> None:
    rng = np.random.default_rng(5)
    for _ in range(60):
        tree, cap = _random_tree(rng)
        path = TreePath(tree, cap)
        for theta in (0.0, 0.3, 1.1, path.top * 0.7, path.top):
            np.testing.assert_allclose(path.level(theta), _poured(tree, cap, theta), atol=1e-9)


def test_rates_are_the_growth_just_above() -> None:
    rng = np.random.default_rng(6)
    for _ in range(100):
        tree, cap = _random_tree(rng)
        path = TreePath(tree, cap)
        for theta in rng.uniform(0.0, 1.1 * path.top + 0.1, 4).tolist():
            growth = (path.level(theta + 1e-7) - path.level(theta)) / 1e-7
            np.testing.assert_allclose(path.rate(theta), growth, atol=1e-5)


def test_stopping_some_changes_no_level_so_far() -> None:
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
