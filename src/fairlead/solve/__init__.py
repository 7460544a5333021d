"""Mathematics: classes, linear programs, lexicographic max-min and its certificates."""

from fairlead.model.allocation import Certificate
from fairlead.solve.classes import Classes, merge
from fairlead.solve.linear import Columns, LinearProgram, LinearSolution, solve_lp
from fairlead.solve.max_min.problem import (
    MaxMinProblem,
    MaxMinSolution,
    Stage,
    price_bound,
)
from fairlead.solve.oef.dual_prices import equal_bound
from fairlead.solve.oef.envy_free import EnvyFreeSolution, solve_envy_free
from fairlead.solve.oef.equal_levels import EqualLevelSolution, solve_equal
from fairlead.solve.options.filling import FlatPath, WarmFilling, fill_options
from fairlead.solve.options.first_stage import WarmFirstStage
from fairlead.solve.options.objectives import (
    BestTimes,
    best_ratio,
    best_ratio_above,
    best_sum,
)
from fairlead.solve.options.problem import NO_PARTNER, ExtraRows, OptionProblem
from fairlead.solve.options.solution import OptionSolution, OptionStage
from fairlead.solve.options.warm_sum import OptionPool, WarmSum
from fairlead.solve.paths.filling import (
    ClimbSolution,
    climb,
    climb_first_stage,
    path_bound,
)
from fairlead.solve.paths.path import Path
from fairlead.solve.paths.warm_climb import WarmClimb
from fairlead.solve.recent import RecentSolutions
from fairlead.solve.solver import MaxMinSolver, solve_least_level, solve_max_min

__all__ = [
    "NO_PARTNER",
    "BestTimes",
    "Certificate",
    "Classes",
    "ClimbSolution",
    "Columns",
    "EnvyFreeSolution",
    "EqualLevelSolution",
    "ExtraRows",
    "FlatPath",
    "LinearProgram",
    "LinearSolution",
    "MaxMinProblem",
    "MaxMinSolution",
    "MaxMinSolver",
    "OptionPool",
    "OptionProblem",
    "OptionSolution",
    "OptionStage",
    "Path",
    "RecentSolutions",
    "Stage",
    "WarmClimb",
    "WarmFilling",
    "WarmFirstStage",
    "WarmSum",
    "best_ratio",
    "best_ratio_above",
    "best_sum",
    "climb",
    "climb_first_stage",
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
