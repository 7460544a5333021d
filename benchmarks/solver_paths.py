"""Measure the gain of each special way to an exact answer, against the next more general one.

Every row solves the same problems with the way and without it, and compares the answers. One
random problem says little: ratios differ severalfold between seeds, so a row is the median over
several, with its range. A ratio below 1 is a loss. "fails" counts the problems that ended in a
SolveError with the way and without it; these have no ratio. Times are milliseconds of process
CPU, the best of several calls. docs/design/solver-paths.md explains the ways and has the ratios.

    python -m benchmarks.solver_paths [--slow]
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import process_time
from typing import Any

import numpy as np
from benchmarks.solver import LOADS, instance

from fairlead.model.arrays import FloatArray
from fairlead.model.errors import SolveError
from fairlead.solve import solver
from fairlead.solve.max_min.problem import MaxMinProblem
from fairlead.solve.max_min_many import least_level, price_estimate
from fairlead.solve.oef import dual_prices, envy_free
from fairlead.solve.oef.envy_free import solve_envy_free
from fairlead.solve.oef.equal_levels import solve_equal
from fairlead.solve.options import program as option_program
from fairlead.solve.options.filling import FlatPath, fill_options
from fairlead.solve.options.problem import NO_PARTNER, OptionProblem
from fairlead.solve.paths.filling import climb
from fairlead.solve.solver import MaxMinSolver, solve_least_level, solve_max_min

NEVER = 10**9
SEEDS = range(7)


@dataclass(frozen=True)
class Sample:
    """One problem: the time with the way, the time without it, and the difference of levels."""

    ms: float
    without_ms: float
    difference: float


@contextmanager
def changed(owner: object, **constants: object) -> Iterator[None]:
    """Replace constants or functions of a module or class for a while."""
    before = {name: getattr(owner, name) for name in constants}
    for name, value in constants.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def cpu_ms(call: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = process_time()
        call()
        times.append(process_time() - start)
    return 1e3 * min(times)


def sample(
    way: Callable[[], FloatArray],
    without: Callable[[], FloatArray],
    owner: object = None,
    repeats: int = 3,
    **constants: object,
) -> Sample:
    """Time both, the second with the owner's constants replaced; NaN where one fails."""
    ours, ms = _timed(way, repeats)
    with changed(owner, **constants):
        other, without_ms = _timed(without, repeats if ms < 100 else 1)
    if ours is None or other is None:
        return Sample(ms, without_ms, 0.0)
    return Sample(ms, without_ms, float(np.abs(ours - other).max(initial=0.0)))


def _timed(call: Callable[[], FloatArray], repeats: int) -> tuple[FloatArray | None, float]:
    try:
        return call(), cpu_ms(call, repeats)
    except SolveError:
        return None, float("nan")


def levels(problem: MaxMinProblem) -> FloatArray:
    return solve_max_min(problem).level


def simplex_levels(problem: MaxMinProblem) -> FloatArray:
    return solver.solve_many(problem, NEVER).level


def least_of_all_levels(problem: MaxMinProblem) -> FloatArray:
    least: FloatArray = levels(problem).min(keepdims=True)
    return least


def policy_problem(classes: int, members: int, load: float, seed: int) -> MaxMinProblem:
    """Return what ``max-min`` solves: gains relative to an equal split, many members a class."""
    base = instance(classes, 3, 1.0, seed)
    count = np.random.default_rng(seed).multinomial(members, np.ones(classes) / classes)
    capacity = np.full(3, np.floor((count * base.size).sum() / load / 3))
    split = capacity.sum() / members
    gain = base.gain / base.gain.mean(axis=1, keepdims=True) * (base.size / split)[:, None]
    return MaxMinProblem(gain, base.size, count.astype(float), capacity)


def sequence(problem: MaxMinProblem, seed: int) -> FloatArray:
    """Solve a hundred problems, one member arriving or leaving between two of them."""
    rng, count, kept = np.random.default_rng(seed), problem.count.copy(), MaxMinSolver()
    members, keys, answers = count.sum(), range(len(count)), []
    for _ in range(100):
        k = rng.integers(len(count))
        count[k] += -1 if count.sum() > members and count[k] > 0 else 1
        now = MaxMinProblem(problem.gain, problem.size, count.copy(), problem.capacity)
        answers.append(kept.solve(now, keys).level)
    return np.concatenate(answers)


def cases(slow: bool) -> Iterator[tuple[str, str, list[Sample]]]:
    """Yield way, case and samples."""
    for classes in (26, 104, 156):
        for load in LOADS:
            crowd = [policy_problem(classes, 4 * classes, LOADS[load], seed) for seed in SEEDS[:3]]
            yield (
                "warm start",
                f"{classes} classes, {load}",
                [
                    sample(
                        partial(sequence, p, 1),
                        partial(sequence, p, 1),
                        solver._WarmProgram,
                        1,
                        _try_warm_start=lambda *_: None,
                    )
                    for p in crowd
                ],
            )
    for classes in (40, 104, 156):
        for load in LOADS:
            crowd = [policy_problem(classes, 100_000, LOADS[load], seed) for seed in SEEDS]
            yield (
                "crossover",
                f"{classes} classes, {load}",
                [
                    sample(partial(levels, p), partial(levels, p), solver, _GUESSED_CLASSES=NEVER)
                    for p in crowd
                ],
            )
    for classes, width in ((200, 3), (512, 3), (512, 10)):
        for load in LOADS:
            ps = [instance(classes, width, LOADS[load], seed) for seed in SEEDS[:3]]
            yield (
                "many classes",
                f"{classes} × {width}, {load}",
                [
                    sample(
                        partial(levels, p),
                        partial(simplex_levels, p),
                        repeats=1,
                    )
                    for p in ps
                ],
            )
    for classes in (100_000, 1_000_000) if slow else (100_000,):
        for load in LOADS:
            ps = [instance(classes, 3, LOADS[load], seed) for seed in SEEDS[:2]]
            yield (
                "prices by Newton",
                f"{classes} × 3, {load}",
                [
                    sample(
                        partial(levels, p), partial(levels, p), price_estimate, 1, _SMOOTH=NEVER
                    )
                    for p in ps
                ],
            )
    yield from least_cases()
    yield from path_cases()
    yield from option_cases()
    yield from oef_cases()


def least_cases() -> Iterator[tuple[str, str, list[Sample]]]:
    def least(problem: MaxMinProblem) -> FloatArray:
        return np.array([solve_least_level(problem).stages[0].level])

    for classes in (104, 2048):
        for load in LOADS:
            ps = [instance(classes, 3, LOADS[load], seed) for seed in SEEDS]
            yield (
                "least level only",
                f"{classes} classes, {load}",
                [sample(partial(least, p), partial(least_of_all_levels, p)) for p in ps],
            )
            yield (
                "least level at caps",
                f"{classes} classes, {load}",
                [
                    sample(
                        partial(least, p), partial(least, p), least_level, _fitting=lambda *_: None
                    )
                    for p in ps
                ],
            )


def climbed(problem: MaxMinProblem, few: int = 160) -> FloatArray:
    return climb(problem, FlatPath(problem.gain.max(axis=1)), few).level


def path_cases() -> Iterator[tuple[str, str, list[Sample]]]:
    for classes in (26, 104, 2048):
        for load in LOADS:
            ps = [instance(classes, 3, LOADS[load], seed) for seed in SEEDS]
            yield (
                "max-min, not a path",
                f"{classes} classes, {load}",
                [sample(partial(levels, p), partial(climbed, p)) for p in ps],
            )
    for load in LOADS:
        ps = [instance(512, 3, LOADS[load], seed) for seed in SEEDS[:3]]
        yield (
            "many classes on a path",
            f"512 classes, {load}",
            [sample(partial(climbed, p), partial(climbed, p, NEVER), repeats=1) for p in ps],
        )


def as_options(problem: MaxMinProblem) -> OptionProblem:
    """Every (class, resource) with a gain as an option of one member."""
    k, j = problem.gain.nonzero()
    none = np.zeros(len(k))
    alone = np.full(len(k), NO_PARTNER)
    gain = problem.gain[k, j]
    tie = np.random.default_rng(0).random(len(k))
    return OptionProblem(
        problem.count, problem.capacity, j, problem.size[k], k, alone, gain, none, tie
    )


def pairs(classes: int, seed: int) -> OptionProblem:
    """Classes of gang 1 of which any two may share a device."""
    base = instance(classes, 3, 2.0, seed)
    rng = np.random.default_rng(seed)
    a, b = np.triu_indices(classes, 1)
    single = as_options(MaxMinProblem(base.gain, np.ones(classes), base.count, base.capacity))
    first, second = np.tile(a, 3), np.tile(b, 3)
    where = np.repeat(np.arange(3), len(a))
    gain_a = base.gain[first, where] * rng.uniform(0.4, 0.9, len(first))
    gain_b = base.gain[second, where] * rng.uniform(0.4, 0.9, len(first))
    return OptionProblem(
        base.count,
        base.capacity,
        np.concatenate([single.resource, where]),
        np.ones(len(single.resource) + len(where)),
        np.concatenate([single.first, first]),
        np.concatenate([single.second, second]),
        np.concatenate([single.gain_first, gain_a]),
        np.concatenate([single.gain_second, gain_b]),
        np.concatenate([single.tie, rng.random(len(first))]),
    )


def filled(problem: OptionProblem) -> FloatArray:
    return fill_options(problem, FlatPath(problem.cap)).level


def option_cases() -> Iterator[tuple[str, str, list[Sample]]]:
    for classes in (26, 104):
        for load in LOADS:
            ps = [instance(classes, 3, LOADS[load], seed) for seed in SEEDS]
            yield (
                "path, not options",
                f"{classes} classes, {load}",
                [sample(partial(climbed, p), partial(filled, as_options(p))) for p in ps],
            )
    for classes in (60, 100):
        problems = [pairs(classes, seed) for seed in SEEDS[:3]]
        yield (
            "columns on demand",
            f"{classes} classes, {len(problems[0].resource)} options",
            [
                sample(
                    partial(filled, p), partial(filled, p), option_program, 1, _ALL_COLUMNS=NEVER
                )
                for p in problems
            ],
        )


def oef_cases() -> Iterator[tuple[str, str, list[Sample]]]:
    for count in (100, 1000):
        samples, envy = [], []
        for seed in SEEDS[:3]:
            rng = np.random.default_rng(seed)
            gain, weight = rng.uniform(0.5, 3.0, (count, 10)), rng.uniform(0.5, 2.0, count)
            capacity = np.full(10, count / 2)

            def equal(
                g: FloatArray = gain, w: FloatArray = weight, c: FloatArray = capacity
            ) -> FloatArray:
                return solve_equal(g, w, c).level

            def free(
                g: FloatArray = gain, w: FloatArray = weight, c: FloatArray = capacity
            ) -> FloatArray:
                return np.array([solve_envy_free(g, w, c).total / len(w)])

            samples.append(sample(equal, equal, dual_prices, 1, _CORE=NEVER))
            if count == 100:
                envy.append(sample(free, free, envy_free, 1, _NEIGHBOURS=NEVER))
        yield "equal levels by prices", f"{count} rows × 10", samples
        if envy:
            yield "envy rows on demand", f"{count} rows × 10", envy


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slow", action="store_true", help="a million classes, too")
    slow = parser.parse_args().slow
    head = f"{'way':24} {'case':28} {'ms':>8} {'without':>8} {'ratio':>6} {'range':>11}"
    print(f"{head} {'differs':>8} fails")
    for way, case, samples in cases(slow):
        ms = np.array([s.ms for s in samples])
        without = np.array([s.without_ms for s in samples])
        solved = ~np.isnan(ms + without)
        fails = f"{np.isnan(ms).sum()}, {np.isnan(without).sum()} of {len(samples)}"
        if not solved.any():
            print(f"{way:24} {case:28} {'':53} {fails}", flush=True)
            continue
        ratio = (without / ms)[solved]
        times = f"{np.median(ms[solved]):8.2f} {np.median(without[solved]):8.2f}"
        spread = f"{ratio.min():.1f}–{ratio.max():.1f}"
        apart = max(s.difference for s in samples)
        line = f"{way:24} {case:28} {times} {np.median(ratio):6.1f} {spread:>11} {apart:8.0e}"
        print(f"{line} {fails}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
