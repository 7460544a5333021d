"""Water-filling in a hierarchy of tenants: the path of the policy ``hierarchical``.

The water is normalised speed. At theta each top-level tenant may have its weight times theta,
and distributes it among its children, jobs and tenants alike:

- fairness: to each in proportion to its weight, w_c · λ, but no more than its cap;
- fifo: to the first in order of arrival up to its cap, then to the second, and so on.

A tenant's cap is the sum of its children's caps; a job's cap is the level it can reach or, once
stopped, the level it has. This closed form is the limit of the paper's iterations (Gavel §4.3).
There a job rises from t_m at a rate w_m, the w_m of a tenant's jobs sum to the tenant's weight,
and a bottlenecked job's weight goes to its siblings by the tenant's rule. So a tenant's total
rises at its weight times that of theta while any of its jobs can rise. Under fairness the jobs
that still rise have risen in proportion to their weights from the start, so their levels are
w_c · λ with one λ. Under fifo all of the weight is with the first job that is not bottlenecked.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.tenants.tree import ROOT


@dataclass(frozen=True, slots=True, eq=False)
class ClassTree:
    """Tenants (nodes 0 to T - 1) and the classes of jobs in them (the nodes from T on)."""

    parent: IntArray
    """nodes → tenant that holds the node, ROOT for none"""
    weight: FloatArray
    """nodes → weight among its siblings, that of all members for a class"""
    arrival_order: IntArray
    """nodes → position in its parent's queue; only the order counts"""
    fifo: BoolArray
    """tenants → whether it serves its children in order of arrival"""
    members: FloatArray
    """classes → jobs"""

    @property
    def tenants(self) -> int:
        """Number of nodes that are tenants."""
        return len(self.fifo)

    def by_depth(self) -> list[IntArray]:
        """Return the nodes at depth 0, 1 and so on."""
        depth = np.zeros(len(self.parent), np.int64)
        at = self.parent.copy()
        while (at != ROOT).any():
            depth += at != ROOT
            at = np.where(at == ROOT, ROOT, self.parent[at])
        return [np.flatnonzero(depth == d) for d in range(int(depth.max(initial=-1)) + 1)]


class TreePath:
    """The levels of a tree's classes of jobs by theta."""

    def __init__(self, tree: ClassTree, cap: FloatArray, layers: Sequence[IntArray] = ()) -> None:
        self._tree = tree
        self._layers = layers or tree.by_depth()
        whole = np.zeros(len(tree.parent))
        whole[tree.tenants :] = cap * tree.members
        for nodes in reversed(self._layers[1:]):
            np.add.at(whole, tree.parent[nodes], whole[nodes])
        self._cap = whole
        self._siblings = [_TreeLevel(tree, nodes, whole) for nodes in self._layers[1:]]
        self._last = (-1.0, np.zeros(0), np.zeros(0))  # theta, levels and rates asked for last

    @property
    def top(self) -> float:
        """The theta from which on every tenant has reached its cap."""
        first = self._layers[0] if self._layers else np.zeros(0, np.int64)
        return float((self._cap[first] / self._tree.weight[first]).max(initial=0.0))

    def level(self, theta: float) -> FloatArray:
        """Return classes → level of a member at ``theta``."""
        return self._at(theta)[1]

    def rate(self, theta: float) -> FloatArray:
        """Return classes → growth of a member's level just above ``theta``."""
        return self._at(theta)[2]

    def _at(self, theta: float) -> tuple[float, FloatArray, FloatArray]:
        """Return theta, levels and rates; climbs ask for both at one theta."""
        last = self._last
        if last[0] == theta:
            return last
        water, rate = np.zeros(len(self._cap)), np.zeros(len(self._cap))
        for nodes in self._layers[:1]:
            want = self._tree.weight[nodes] * theta
            water[nodes] = np.minimum(want, self._cap[nodes])
            rate[nodes] = np.where(want < self._cap[nodes], self._tree.weight[nodes], 0.0)
        for group in self._siblings:
            group.distribute(water, rate)
        first, members = self._tree.tenants, self._tree.members
        self._last = last = (theta, water[first:] / members, rate[first:] / members)
        return last

    def within(self, cap: FloatArray) -> "TreePath":
        """Return the path of the same tree with these caps of its classes."""
        return TreePath(self._tree, cap, self._layers)


class _TreeLevel:
    """All nodes of one depth, next to their siblings, in the order in which they fill up."""

    def __init__(self, tree: ClassTree, nodes: IntArray, cap: FloatArray) -> None:
        parent, weight = tree.parent[nodes], tree.weight[nodes]
        fifo = tree.fifo[parent]
        # Under fairness the child with the least cap per weight fills up first.
        key = np.where(fifo, tree.arrival_order[nodes], cap[nodes] / weight)
        order = np.lexsort((nodes, key, parent))
        self._nodes, self._parent, self._fifo = nodes[order], parent[order], fifo[order]
        self._weight, self._cap = weight[order], cap[nodes][order]
        new = np.ones(len(order), bool)
        new[1:] = self._parent[1:] != self._parent[:-1]
        self._start = np.flatnonzero(new)  # groups → first child
        self._group = np.cumsum(new) - 1  # children → group
        size = np.diff(np.append(self._start, len(order)))
        self._last = self._start + size - 1
        before = np.cumsum(self._cap) - self._cap
        self._before = before - before[self._start][self._group]
        after = np.cumsum(self._weight[::-1])[::-1]
        beyond = np.append(after, 0.0)[self._last + 1]
        self._weight_on = after - beyond[self._group]  # of the child and those after it
        # Water of the parent at which a fair child is full.
        self._full_at = self._before + key[order] * self._weight_on
        self._whole = cap[self._parent]
        self._all_fifo, self._all_fair = bool(fifo.all()), not fifo.any()

    def distribute(self, water: FloatArray, rate: FloatArray) -> None:
        """Distribute the parents' water, and the rates at which it rises, to these nodes."""
        have = water[self._parent]
        if self._all_fifo:
            level, share = self._queue(have)
        elif self._all_fair:
            level, share = self._fair(have)
        else:
            queued, served = self._queue(have)
            level, share = self._fair(have)
            level = np.where(self._fifo, queued, level)
            share = np.where(self._fifo, served, share)
        done = have >= self._whole
        water[self._nodes] = np.where(done, self._cap, level)
        rate[self._nodes] = np.where(done, 0.0, share * rate[self._parent])

    def _fair(self, have: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the children's water by weight, and their parts of its rise."""
        full = self._full_at <= have
        count = np.add.reduceat(full, self._start, dtype=np.int64)
        turn = np.minimum(self._start + count, self._last)[self._group]  # the first not full
        slope = self._weight / self._weight_on[turn]
        level = np.minimum(self._cap, slope * (have - self._before[turn]))
        return np.where(full, self._cap, level), np.where(full, 0.0, slope)

    def _queue(self, have: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the children's water in order of arrival, and their parts of its rise."""
        ahead = have - self._before
        served = (ahead >= 0.0) & (have < self._before + self._cap)
        return np.minimum(np.maximum(ahead, 0.0), self._cap), served.astype(np.float64)
