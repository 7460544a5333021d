"""The mathematics: classes, linear programs, lexicographic max-min and its certificates."""

from fairlead.model.allocation import Certificate
from fairlead.solve.classes import Classes, merge
from fairlead.solve.linear import Columns, LinearProgram, LinearSolution, solve_lp
from fairlead.solve.problem import (
    MaxMinProblem,
    MaxMinSolution,
    Stage,
    price_bound,
)
from fairlead.solve.solver import MaxMinSolver, solve_least_level, solve_max_min

__all__ = [
    "Certificate",
    "Classes",
    "Columns",
    "LinearProgram",
    "LinearSolution",
    "MaxMinProblem",
    "MaxMinSolution",
    "MaxMinSolver",
    "Stage",
    "merge",
    "price_bound",
    "solve_least_level",
    "solve_lp",
    "solve_max_min",
]
