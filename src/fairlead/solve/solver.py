"""Lexicographic max-min: one pure function, and a solver that starts from its last answer."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray
from fairlead.model.errors import SolveError
from fairlead.solve.classes import merge
from fairlead.solve.max_min.class_table import ClassTable
from fairlead.solve.max_min.filling import Filling, FillingStage, fill
from fairlead.solve.max_min.problem import (
    MaxMinProblem,
    MaxMinSolution,
    Stage,
    feasible,
)
from fairlead.solve.max_min.program import StageProgram
from fairlead.solve.max_min.warm_start import WarmSolution, WarmStage

# Above this number of classes, prices with a small program are faster than simplex.
SIMPLEX_CLASSES = 160
_MAX_MANY_RESOURCES = 15
# A program is rebuilt when it holds this many times the classes asked for.
_MAX_UNUSED_SLOTS = 4
# From this number of classes on, prices are guessed before a program is solved cold.
_GUESSED_CLASSES = 40


def solve_max_min(problem: MaxMinProblem, guess: tuple[float, ...] = ()) -> MaxMinSolution:
    """Return the lexicographic max-min levels and, of the shares that reach them, the tie rule's.

    The tie rule: the shares that hold the least device time; equal classes get equal shares;
    what is still tied is decided by a fixed generic perturbation of each class's device times
    that depends on its gains and size only. So neither the order of classes nor an earlier
    solve matters. ``guess`` holds levels at which classes may stop; it decides only how many
    programs are solved.
    """
    return MaxMinSolver(guess).solve(problem, range(len(problem.size)))


def solve_least_level(problem: MaxMinProblem) -> MaxMinSolution:
    """Return shares with the greatest least level, and the prices that prove it: no more levels.

    This is the plain max-min program of a general solver; other classes may get more or not.
    Much faster than ``solve_max_min`` where caps stop the least level.
    """
    problem.check()
    gain = problem.gain.T.copy()
    gain[problem.capacity <= 0] = 0.0
    live = (problem.count > 0) & (gain.max(axis=0) > 0)
    share = np.zeros_like(problem.gain)
    index = live.nonzero()[0]
    if not len(index):
        return MaxMinSolution(problem, share, ())
    size, count = problem.size, problem.count
    if len(index) < len(live):
        gain, size, count = np.ascontiguousarray(gain[:, index]), size[index], count[index]
    from fairlead.solve.max_min_many.least_level import least_level  # noqa: PLC0415  # slow to import
    from fairlead.solve.max_min_many.pricing import StageClasses  # noqa: PLC0415  # as above

    t, prices, share[index] = least_level(StageClasses(gain, size, count, problem.capacity))
    return MaxMinSolution(problem, feasible(problem, share), (Stage(t, prices, index),))


class MaxMinSolver:
    """Solves successive similar problems fast; every answer is that of ``solve_max_min``.

    It keeps a cache: the classes' ways at the last prices, a HiGHS model with its basis, and a
    guess of the levels.
    """

    def __init__(self, guess: tuple[float, ...] = ()) -> None:
        """Begin with a guess of the levels, which decides only how many programs are solved."""
        self._warm: _WarmProgram | None = None
        self._guess = guess

    def solve(self, problem: MaxMinProblem, keys: Sequence[int]) -> MaxMinSolution:
        """Return the answer to ``problem``, whose class k is known across calls as ``keys[k]``."""
        if len(problem.size) > SIMPLEX_CLASSES and len(problem.capacity) <= _MAX_MANY_RESOURCES:
            return solve_many(problem)
        if self._warm is None or not self._warm.accepts(problem, keys):
            problem.check()
            self._warm = _WarmProgram(problem, keys, self._guess)
        return self._warm.solve(problem)


class _WarmProgram:
    """Classes by key in slots of one persistent program; equal classes share a slot."""

    def __init__(
        self, problem: MaxMinProblem, keys: Sequence[int], guess: tuple[float, ...]
    ) -> None:
        self._open = problem.capacity > 0
        self._capacity = problem.capacity.tobytes()
        self._program = StageProgram(problem.capacity)
        self._slot_of_key: dict[int, int] = {}
        self._slot_of_class: dict[bytes, int] = {}
        self._gain = np.zeros((0, len(self._open)))
        self._size = np.zeros(0)
        self._guess = guess
        self._warm_start: WarmStage | None = (
            None  # the last answer, if a warm start from it is possible
        )
        self._stopped: tuple[FillingStage, ...] = ()  # its stages, before a warm start was tried
        self._pattern = b""
        self._register(problem, keys)

    def accepts(self, problem: MaxMinProblem, keys: Sequence[int]) -> bool:
        """Register unseen keys; return False if the program must be rebuilt."""
        capacity = problem.capacity.tobytes()
        if capacity != self._capacity:
            if not np.array_equal(problem.capacity > 0, self._open):
                return False
            self._program.set_capacity(problem.capacity)
            self._capacity = capacity
            self._warm_start, self._stopped = None, ()
        if len(self._size) > _MAX_UNUSED_SLOTS * len(keys) + 16:
            return False
        if list(keys) != self._keys:
            if all(key in self._slot_of_key for key in keys):
                self._look_up(keys)
            else:
                problem.check()
                self._register(problem, keys)
        return problem.gain.tobytes() == self._rows and problem.size.tobytes() == self._sizes

    def _register(self, problem: MaxMinProblem, keys: Sequence[int]) -> None:
        rows = np.column_stack([problem.gain, problem.size]) + 0.0
        fresh: list[int] = []
        for k, key in enumerate(keys):
            content = rows[k].tobytes()
            if key not in self._slot_of_key and content not in self._slot_of_class:
                self._slot_of_class[content] = len(self._size) + len(fresh)
                fresh.append(k)
            self._slot_of_key.setdefault(key, self._slot_of_class.get(content, 0))
        self._gain = np.concatenate([self._gain, problem.gain[fresh]])
        self._size = np.concatenate([self._size, problem.size[fresh]])
        self._table = ClassTable.of(self._gain, self._size, self._open)
        self._runs = (self._table.cap > 0).astype(np.float64)
        self._pattern = b""
        self._warm_start, self._stopped = None, ()
        first = len(self._size) - len(fresh)
        self._program.add(self._table.gain[first:], self._size[first:])
        self._look_up(keys)

    def _look_up(self, keys: Sequence[int]) -> None:
        self._keys = list(keys)
        self._slots = np.array([self._slot_of_key[key] for key in keys], np.int64)
        self._rows = self._gain[self._slots].tobytes()
        self._sizes = self._size[self._slots].tobytes()
        # Whether the problem's classes are just those of the program.
        self._apart = np.array_equal(self._slots, np.arange(len(self._size)))

    def solve(self, problem: MaxMinProblem) -> MaxMinSolution:
        """Return the answer for the classes looked up last."""
        if self._apart:
            count = problem.count * self._runs
        else:
            count = np.bincount(self._slots, problem.count, len(self._size)) * self._runs
        warm = self._try_warm_start(count, problem.capacity)
        if warm is not None:
            share, stages = warm.share, warm.stages
        else:
            free = count > 0
            total, stages = self._fill(count, free, problem.capacity)
            share = total / np.maximum(count, 1e-300)[:, None]
            share[~free] = 0.0
            self._free = free
            self._stopped = tuple(stages) if len(stages) <= 2 else ()
        # Twelve decimals hide the last bits, in which machines and warm starts may differ.
        share = np.maximum(share, 0.0).round(12)
        if self._apart:
            named = tuple(Stage(s.t, s.prices, s.frozen.nonzero()[0]) for s in stages)
            return MaxMinSolution(problem, share, named)
        share, present = share[self._slots], problem.count > 0
        share[~present] = 0.0  # where another class of the same slot has members
        named = tuple(
            Stage(s.t, s.prices, (s.frozen[self._slots] & present).nonzero()[0]) for s in stages
        )
        return MaxMinSolution(problem, share, named)

    def _try_warm_start(self, count: FloatArray, capacity: FloatArray) -> WarmSolution | None:
        """Return the answer that follows from the last one, if one stage stopped all classes."""
        if self._stopped:
            warm, first = WarmStage(self._table, capacity), self._stopped[0]
            started = warm.start(first.t, first.prices, self._free)
            self._warm_start = warm if started else None
            self._stopped = ()
        solution = None if self._warm_start is None else self._warm_start.solve(count)
        if solution is None:
            self._warm_start = None
        return solution

    def _fill(
        self, count: FloatArray, free: BoolArray, capacity: FloatArray
    ) -> tuple[FloatArray, list[FillingStage]]:
        table = self._table
        total = table.best * count[:, None]
        if table.fits(total, capacity):
            return total, _all_at_caps(table, count)
        if not self._guess and np.count_nonzero(free) >= _GUESSED_CLASSES:
            from fairlead.solve.max_min_many.crossover import (  # noqa: PLC0415  # only many classes
                fill_from_guessed_prices,
            )

            guessed = fill_from_guessed_prices(table, count, capacity)
            if guessed is not None:
                return guessed[0] * count[:, None], guessed[1]
        pattern = free.tobytes()
        if pattern != self._pattern:
            self._pattern = pattern
            self._loose = self._program.loose(~free, table.gain <= 0)
        guess = self._guess
        if not guess or guess[0] >= table.least_cap:
            fitting = table.first_guess(count, capacity)
            guess = (min((fitting, *guess[:1])), *guess[1:])
        state = Filling(self._program, table, count, capacity, free, np.zeros(len(count)))
        try:
            total, stages = fill(state, self._loose, guess)
        except SolveError:
            return self._fill_anew(count, capacity)
        self._guess = tuple(stage.t for stage in stages)
        return total, stages

    def _fill_anew(
        self, count: FloatArray, capacity: FloatArray
    ) -> tuple[FloatArray, list[FillingStage]]:
        """Fill by prices and small programs, since simplex lost its way, and forget its basis."""
        self._program = StageProgram(capacity)
        self._program.add(self._table.gain, self._size)
        self._guess = ()
        from fairlead.solve.max_min_many.filling import fill_many_classes  # noqa: PLC0415  # see above

        share, stages = fill_many_classes(self._table, count, capacity, few=0)
        problem = MaxMinProblem(self._table.gain, self._size, count, capacity)
        return feasible(problem, share) * count[:, None], stages


def _all_at_caps(table: ClassTable, count: FloatArray) -> list[FillingStage]:
    live = count > 0
    if not live.any():
        return []
    return [FillingStage(float(table.cap[live].max()), np.zeros(table.gain.shape[1]), live)]


def solve_many(problem: MaxMinProblem, few: int = SIMPLEX_CLASSES) -> MaxMinSolution:
    """Return the answer after merging equal classes, by simplex if at most ``few`` remain."""
    from fairlead.solve.max_min_many.filling import fill_many_classes  # noqa: PLC0415  # see above

    problem.check()
    classes = merge(problem.gain, problem.size)
    first, index = classes.representative, classes.index_of_member
    gain, size, capacity = problem.gain[first], problem.size[first], problem.capacity
    table = ClassTable.of(gain, size, capacity > 0)
    count = np.bincount(index, problem.count, len(first)).astype(np.float64) * (table.cap > 0)
    share, stages = fill_many_classes(table, count, capacity, few)
    share = feasible(MaxMinProblem(gain, size, count, capacity), share)[index]
    named = tuple(Stage(s.t, s.prices, np.flatnonzero(s.frozen[index])) for s in stages)
    absent = problem.count <= 0
    if absent.any():
        share[absent] = 0.0
        named = tuple(replace(s, frozen=s.frozen[~absent[s.frozen]]) for s in named)
    return MaxMinSolution(problem, share, named)
