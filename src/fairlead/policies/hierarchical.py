"""Hierarchical fairness: tenants of any depth, fairness or FIFO inside (Gavel §4.3)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.errors import UsageError
from fairlead.model.snapshot import Snapshot
from fairlead.model.tenants.tree import ROOT, TenantTree
from fairlead.policies._levels.hierarchy import ClassTree, TreePath
from fairlead.policies._levels.paths import path_allocation
from fairlead.policies._packing.levels import path_units
from fairlead.policies._packing.policy import UnitPolicy
from fairlead.policies.base import WarmStart, empty_allocation, mean_speed
from fairlead.solve.classes import Classes, merge
from fairlead.solve.max_min.problem import MaxMinProblem
from fairlead.solve.options.filling import WarmFilling
from fairlead.solve.paths.warm_climb import WarmClimb

_INNER = ("fairness", "fifo")


@dataclass(frozen=True)
class Hierarchical(UnitPolicy):
    """Share the cluster among tenants by weight, and each tenant's part among its children.

    The normalised speeds of all tenants (as in ``max-min``, gangs counted by their size) rise
    together, in proportion to weight. Inside a tenant jobs and sub-tenants are siblings that
    share by weight or, if its ``inner`` is fifo, in order of arrival; a sub-tenant arrives with
    its first job. The part that a job cannot use goes to its siblings by the same rule.
    ``inner`` overrides that of every tenant. Objective and bound are the normalised speed per
    unit of weight at which the first resource is exhausted. ``agnostic`` counts time only,
    spread over all accelerators evenly. ``packed`` lets two jobs share devices where that pays;
    ``placement`` distinguishes gangs on one node from spread gangs.
    """

    alone: ClassVar[Capabilities] = Capabilities(
        reads_progress=False, per_accelerator_gangs=True, divides_among_tenants=True
    )
    inner: str = ""
    """rule inside every tenant, fairness or fifo; empty: each tenant's own"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner not in ("", *_INNER):
            raise UsageError(f"inner={self.inner!r}: expected fairness or fifo")

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return the shares at the end of the tenants' path."""
        return self.allocate_warm(snap, WarmStart())

    def allocate_warm(self, snap: Snapshot, warm: WarmStart) -> Allocation:
        """Return the same; the search begins at the prices of the planner's last solution."""
        if not len(snap.job):
            return empty_allocation(snap)
        fifo = np.array([(self.inner or tenant.inner) == "fifo" for tenant in snap.tenants])
        if self._needs_unit_program(snap):
            return self._units(snap, fifo, warm)
        gain = self._gain(snap)
        classes = _classes(snap, gain, fifo)
        first = classes.representative
        problem = MaxMinProblem(
            gain[first],
            snap.gang[first].astype(float),
            classes.count.astype(float),
            snap.devices,
        )
        path = TreePath(tree_of(snap, classes, fifo), gain[first].max(axis=1))
        last = warm.state(self, WarmClimb)
        return path_allocation(
            snap, problem, path, classes.index_of_member, last, pooled=self.agnostic
        )

    def _units(self, snap: Snapshot, fifo: BoolArray, warm: WarmStart) -> Allocation:
        """Return the same with shares of units."""
        speed = None
        scale = snap.gang.astype(float)
        if self.agnostic:
            speed = (snap.speed > 0).astype(float)
        else:
            normal = mean_speed(snap.gang_speed, snap.capacity)
            scale = scale / np.where(normal > 0, normal, 1.0)
        return path_units(
            snap,
            scale,
            np.column_stack([snap.weight, _queue_position(snap, fifo)]),
            lambda classes, problem: TreePath(tree_of(snap, classes, fifo), problem.cap),
            self._rules,
            warm.state((self, WarmFilling), WarmFilling),
            speed,
        )

    def _gain(self, snap: Snapshot) -> FloatArray:
        """Return jobs × accelerators → normalised speed on all time there."""
        runs = (snap.speed > 0) & (snap.gang[:, None] <= snap.capacity)
        if self.agnostic:
            return np.where(runs, snap.gang[:, None].astype(float), 0.0)
        speed = snap.speed
        normal = mean_speed(speed, snap.capacity)
        scale = snap.gang / np.where(normal > 0, normal, 1.0)
        return np.where(runs, speed * scale[:, None], 0.0)


def _classes(snap: Snapshot, gain: FloatArray, fifo: BoolArray) -> Classes:
    """Merge alike jobs of one tenant; in a queue every job is a separate class."""
    return merge(gain, snap.gang.astype(float), snap.weight, _queue_position(snap, fifo))


def _queue_position(snap: Snapshot, fifo: BoolArray) -> FloatArray:
    """Return jobs × 2 → its tenant, and its position if the tenant is a queue."""
    tenant = snap.profiles.tenant[snap.profile]
    position = np.where(fifo[tenant], np.arange(len(tenant)), -1)
    return np.column_stack([tenant, position]).astype(float)


def tree_of(snap: Snapshot, classes: Classes, fifo: BoolArray) -> ClassTree:
    """Return the tree of the snapshot's tenants and its jobs' classes."""
    first = classes.representative
    home = snap.profiles.tenant[snap.profile][first]
    parent = np.concatenate([np.array(TenantTree(snap.tenants).parent, np.int64), home])
    weight = np.concatenate(
        [[tenant.weight for tenant in snap.tenants], snap.weight[first] * classes.count]
    )
    members = classes.count.astype(float)
    return ClassTree(parent, weight, _arrival_order(snap, classes, parent), fifo, members)


def _arrival_order(snap: Snapshot, classes: Classes, parent: IntArray) -> IntArray:
    """Return nodes → order of arrival; a class or tenant arrives with its first job."""
    tenants = len(parent) - len(classes.count)
    rank = np.empty(len(snap.job), np.int64)
    rank[np.lexsort((snap.job, snap.arrival_at))] = np.arange(len(rank))
    order = np.full(len(parent), len(rank), np.int64)
    np.minimum.at(order, tenants + classes.index_of_member, rank)
    at = parent[tenants:]
    own = order[tenants:]
    while (inside := at != ROOT).any():
        np.minimum.at(order, at[inside], own[inside])
        at = np.where(inside, parent[at], ROOT)
    return order
