"""Max-min programs over classes of alike jobs, and the shares of jobs from their solutions."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.allocation import Allocation, Certificate
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.errors import SolveError
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import job_allocation
from fairlead.solve.classes import merge
from fairlead.solve.max_min.problem import MaxMinProblem, MaxMinSolution
from fairlead.solve.solver import solve_least_level

Solve = Callable[[MaxMinProblem, IntArray], MaxMinSolution]


@dataclass(frozen=True, slots=True, eq=False)
class JobClassTable:
    """Rows (jobs or profiles) merged into classes that are alike for a max-min program."""

    class_of: IntArray
    """rows → class"""
    gain: FloatArray
    """classes × accelerators → level reached per unit of time; 0 where it cannot run"""
    size: FloatArray
    """classes → devices a member holds"""
    runs: BoolArray
    """classes → whether it can run on some accelerator"""
    keys: IntArray
    """classes → key by which the solver recognises it"""

    @classmethod
    def of(cls, gain: FloatArray, gang: IntArray, capacity: IntArray) -> "JobClassTable":
        """Merge rows with equal gains and gangs; a gang needs all its devices to be up."""
        gain = np.where(gang[:, None] <= capacity, gain, 0.0)
        merged = merge(np.column_stack([gain, gang]))
        first = merged.representative
        size = gang[first].astype(float)
        runs: BoolArray = np.logical_or.reduce(gain[first] > 0, axis=1)
        return cls(merged.index_of_member, gain[first], size, runs, np.arange(len(first)))


def max_min_allocation(
    snap: Snapshot, table: JobClassTable, class_of_job: IntArray, solve: Solve, *, pooled: bool
) -> Allocation:
    """Return lexicographically max-min fair shares, equal within each class.

    ``pooled`` is for programs that treat all accelerators alike: the time of a class is spread
    over all accelerators that it may use.
    """
    count = np.bincount(class_of_job, minlength=len(table.size)).astype(float)
    capacity = snap.devices
    # Classes without members cost little; they are omitted only if there are many.
    crowded = len(count) > 64 and len(count) > 4 * np.count_nonzero(count)
    present = count.nonzero()[0] if crowded else slice(None)
    gain = table.gain[present]
    one_pool = pooled and bool((gain > 0).all())
    problem = MaxMinProblem(
        gain=gain[:, :1] if one_pool else gain,
        size=table.size[present],
        count=count[present],
        capacity=capacity.sum(keepdims=True) if one_pool else capacity,
    )
    try:
        solution = solve(problem, table.keys[present])
    except SolveError:
        # Too ill-conditioned for all levels: the first level alone is better than no
        # allocation. The certificate shows the gap.
        solution = solve_least_level(problem)
    share = solution.share
    if one_pool:
        share = share * (capacity / max(float(capacity.sum()), 1e-300))
    elif pooled:
        share = spread_evenly(share, problem)
    if crowded:
        by_class = np.zeros(table.gain.shape)
        by_class[present] = share
        share = by_class

    def worth() -> float:
        level = solution.level[(problem.count > 0) & table.runs[present]]
        return float(level.min(initial=np.inf))

    def prove() -> Certificate:
        certificate = solution.certificate
        # One pool has one price, that of every accelerator.
        prices = np.broadcast_to(certificate.prices, len(capacity))
        return replace(certificate, prices=prices)

    return job_allocation(snap, share.take(class_of_job, axis=0), worth=worth, prove=prove)


def spread_evenly(share: FloatArray, problem: MaxMinProblem) -> FloatArray:
    """Return shares with the same time for every class, spread over all accelerators it may use.

    Alternately scales rows to their time and columns to their capacity (iterative proportional
    fitting), starting from shares in proportion to devices: the result is the nearest to a
    division that ignores the accelerators. It stops within 1e-6 of the capacity and cuts off
    the rest.
    """
    time = share.sum(axis=1, keepdims=True)
    mass = (problem.count * problem.size)[:, None]
    spread = np.where(problem.gain > 0, problem.capacity, 0.0)
    for _ in range(200):
        rows = spread.sum(axis=1, keepdims=True)
        spread *= np.divide(time, rows, out=np.zeros_like(rows), where=rows > 0)
        used = (spread * mass).sum(axis=0)
        over = used > problem.capacity
        spread[:, over] *= problem.capacity[over] / used[over]
        if (used <= problem.capacity * (1 + 1e-6)).all():
            return spread
    return share
