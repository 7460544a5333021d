"""Fairness among tenants of any depth, fairness or queues inside them (Gavel §4.3)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.errors import UsageError
from fairlead.model.snapshot import Snapshot
from fairlead.policies._levels.hierarchy import TOP, TenantTree, TreePath
from fairlead.policies._levels.paths import path_allocation
from fairlead.policies._packing.levels import path_units
from fairlead.policies._packing.policy import UnitPolicy
from fairlead.policies.base import empty_allocation, mean_speed
from fairlead.solve import Classes, MaxMinProblem, merge

_INNER = ("fairness", "fifo")


@dataclass(frozen=True)
class Hierarchical(UnitPolicy):
    """Share the cluster among tenants by weight, and what each gets among its jobs and tenants.

    Everyone's normalised speed (as in ``max-min``, gangs counted by their size) rises together,
    a tenant's in proportion to its weight; inside it jobs and sub-tenants are siblings that
    share by weight or, if its ``inner`` is fifo, in order of arrival, a sub-tenant arriving with
    its first job. What a job cannot use goes to its siblings by their tenant's own policy.
    ``inner`` overrides that of every tenant. Objective and bound are the normalised speed per
    unit of weight that every tenant gets, as far as it can use it, before the first resource
    runs out. ``agnostic`` counts time only, spread over all accelerators alike. ``packed`` lets
    two jobs share devices where that pays; ``placement`` tells gangs on one node from spread ones.
    """

    reads_progress: ClassVar[bool] = False
    divides_among_tenants: ClassVar[bool] = True
    inner: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner not in ("", *_INNER):
            raise UsageError(f"inner={self.inner!r} is neither fairness nor fifo")

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return the shares at which nobody can rise without lowering whom the policy prefers."""
        if not len(snap.job):
            return empty_allocation(snap)
        fifo = np.array([(self.inner or tenant.inner) == "fifo" for tenant in snap.tenants])
        if self._needs_unit_program(snap):
            return self._units(snap, fifo)
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
        return path_allocation(snap, problem, path, classes.index_of_member, pooled=self.agnostic)

    def _units(self, snap: Snapshot, fifo: BoolArray) -> Allocation:
        """Return the shares of units at which nobody can rise, as those of jobs."""
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
            np.column_stack([snap.weight, _place(snap, fifo)]),
            lambda classes, problem: TreePath(tree_of(snap, classes, fifo), problem.cap),
            self._rules,
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
    """Merge jobs of one fair tenant that are alike; in a queue everybody has his own place."""
    return merge(gain, snap.gang.astype(float), snap.weight, _place(snap, fifo))


def _place(snap: Snapshot, fifo: BoolArray) -> FloatArray:
    """Return jobs × 2 → its tenant, and its own place where that is a queue."""
    tenant = snap.profiles.tenant[snap.profile]
    place = np.where(fifo[tenant], np.arange(len(tenant)), -1)
    return np.column_stack([tenant, place]).astype(float)


def tree_of(snap: Snapshot, classes: Classes, fifo: BoolArray) -> TenantTree:
    """Return the tree of the snapshot's tenants and its jobs' classes."""
    number = {tenant.id: i for i, tenant in enumerate(snap.tenants)}
    above = [number.get(tenant.parent or "", TOP) for tenant in snap.tenants]
    first = classes.representative
    home = snap.profiles.tenant[snap.profile][first]
    parent = np.concatenate([np.array(above, np.int64), home])
    weight = np.concatenate(
        [[tenant.weight for tenant in snap.tenants], snap.weight[first] * classes.count]
    )
    members = classes.count.astype(float)
    return TenantTree(parent, weight, _turns(snap, classes, parent), fifo, members)


def _turns(snap: Snapshot, classes: Classes, parent: IntArray) -> IntArray:
    """Return nodes → order of arrival, a class's or tenant's with the first of its jobs."""
    tenants = len(parent) - len(classes.count)
    rank = np.empty(len(snap.job), np.int64)
    rank[np.lexsort((snap.job, snap.arrival_at))] = np.arange(len(rank))
    turn = np.full(len(parent), len(rank), np.int64)
    np.minimum.at(turn, tenants + classes.index_of_member, rank)
    at = parent[tenants:]
    own = turn[tenants:]
    while (inside := at != TOP).any():
        np.minimum.at(turn, at[inside], own[inside])
        at = np.where(inside, parent[at], TOP)
    return turn
