"""The mathematics: classes, linear programs, lexicographic max-min and its certificates."""

from fairlead.model.allocation import Certificate
from fairlead.solve.classes import Classes, merge
from fairlead.solve.climb import ClimbSolution, climb, climb_once, path_bound
from fairlead.solve.envy import EnvyFreeSolution, solve_envy_free
from fairlead.solve.equal import EqualSolution, solve_equal
from fairlead.solve.linear import Columns, LinearProgram, LinearSolution, solve_lp
from fairlead.solve.market import equal_bound
from fairlead.solve.options import ALONE, ExtraRows, OptionProblem
from fairlead.solve.options_fill import FlatPath, fill_options
from fairlead.solve.options_solution import OptionSolution, OptionStage
from fairlead.solve.options_sum import Best, best_ratio, best_ratio_above, best_sum
from fairlead.solve.path import Path
from fairlead.solve.problem import (
    MaxMinProblem,
    MaxMinSolution,
    Stage,
    price_bound,
)
from fairlead.solve.solver import MaxMinSolver, solve_least_level, solve_max_min

__all__ = [
    "ALONE",
    "Best",
    "Certificate",
    "Classes",
    "ClimbSolution",
    "Columns",
    "EnvyFreeSolution",
    "EqualSolution",
    "ExtraRows",
    "FlatPath",
    "LinearProgram",
    "LinearSolution",
    "MaxMinProblem",
    "MaxMinSolution",
    "MaxMinSolver",
    "OptionProblem",
    "OptionSolution",
    "OptionStage",
    "Path",
    "Stage",
    "best_ratio",
    "best_ratio_above",
    "best_sum",
    "climb",
    "climb_once",
    "equal_bound",
    "fill_options",
    "merge",
    "path_bound",
    "price_bound",
    "solve_envy_free",
    "solve_equal",
    "solve_least_level",
    "solve_lp",
    "solve_max_min",
]
