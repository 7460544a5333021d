"""Allocations of the policies whose levels rise along a path."""

import numpy as np

from fairlead.model.allocation import Allocation, Certificate
from fairlead.model.arrays import IntArray
from fairlead.model.errors import SolveError
from fairlead.model.snapshot import Snapshot
from fairlead.policies._levels.max_min import spread_evenly
from fairlead.policies.base import job_allocation
from fairlead.solve.max_min.problem import MaxMinProblem
from fairlead.solve.paths.filling import climb_first_stage
from fairlead.solve.paths.path import Path
from fairlead.solve.paths.warm_climb import WarmClimb


def path_allocation(
    snap: Snapshot,
    problem: MaxMinProblem,
    path: Path,
    class_of_job: IntArray,
    last: WarmClimb,
    *,
    pooled: bool,
) -> Allocation:
    """Return the shares at the end of the path, equal within each class.

    Objective and bound are the theta at which the resources first stop a class. ``last`` keeps
    the prices of the planner's last climb. ``pooled`` is for programs that treat all accelerators
    alike: the time of a class is spread over all accelerators that it may use.
    """
    solved = problem
    one_pool = pooled and bool((problem.gain > 0).all())
    if one_pool:
        total = problem.capacity.sum(keepdims=True)
        solved = MaxMinProblem(problem.gain[:, :1], problem.size, problem.count, total)
    try:
        solution = last.climb(solved, path)
    except SolveError:
        # Too ill-conditioned for all levels: the first level alone is better than no
        # allocation. The certificate shows the gap.
        solution = climb_first_stage(solved, path)
    share = solution.share
    if one_pool:
        share = share * (problem.capacity / problem.capacity.sum())
    elif pooled:
        share = spread_evenly(share, problem)

    def prove() -> Certificate:
        certificate = solution.certificate
        # One pool has one price, that of every accelerator.
        prices = np.broadcast_to(certificate.prices, len(problem.capacity))
        return Certificate(prices, certificate.bound, certificate.gap)

    return job_allocation(
        snap, share.take(class_of_job, axis=0), worth=lambda: solution.theta, prove=prove
    )
