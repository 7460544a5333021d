"""Errors of completed tables: entries hidden at random, or all but two of an accelerator."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from benchmarks.estimate import methods
from benchmarks.estimate.tables import Measured

from fairlead.estimate.gaussian_process import (
    Variances,
    coverage,
    fit_variances,
    relative_error,
)
from fairlead.estimate.hadare import Device, Training, first_guess
from fairlead.estimate.kernels import PAIR_TERMS, SPEED_TERMS, Term
from fairlead.files.bundled import data_sheets
from fairlead.model.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class Figure:
    """One figure of the table: a case, a method and its value over all seeds."""

    case: str
    method: str
    value: float


def hidden_at_random(
    name: str, table: Measured, part: float, seeds: int, *, twins: bool = True
) -> Iterator[Figure]:
    """Yield the errors with a part of the entries kept.

    Without ``twins``, hidden entries of one device whose other placement is known do not count:
    both are the same measurement.
    """
    errors: dict[str, list[float]] = {}
    covered = []
    for seed in range(seeds):
        kept, hidden = split(len(table.keys), part, seed)
        if not twins:
            hidden = _without_twins(table, kept, hidden)
        true = table.value[hidden]
        estimate = methods.gaussian_process(table, kept, hidden, SPEED_TERMS)
        covered.append(coverage(estimate, np.log(true)))
        _note(errors, "Gaussian process", estimate.median, true)
        _note(errors, "additive", methods.additive(table, kept, hidden), true)
        completed = methods.matrix_completion(table, kept, hidden, seed)
        _note(errors, "Gavel's matrix completion", completed, true)
    case = f"{name}, {part:.0%} kept" + ("" if twins else ", no twins")
    yield from _means(case, errors)
    yield Figure(f"{case}, in 80 % intervals", "Gaussian process", float(np.mean(covered)))


def accelerator_unknown(name: str, table: Measured, seeds: int) -> Iterator[Figure]:
    """Yield the errors where one accelerator has two measurements, averaged over accelerators.

    The variances are those of the other accelerators.
    """
    errors: dict[str, list[float]] = {}
    covered = []
    for code in np.unique(table.cells.accelerator).tolist():
        of = np.flatnonzero(table.cells.accelerator == code)
        others = np.flatnonzero(table.cells.accelerator != code)
        fitted = _variances(SPEED_TERMS, table, others)
        for seed in range(seeds):
            two = np.random.default_rng(seed).choice(of, 2, replace=False)
            kept, hidden = np.concatenate([others, two]), np.setdiff1d(of, two)
            true = table.value[hidden]
            estimate = methods.gaussian_process(table, kept, hidden, SPEED_TERMS, fitted)
            covered.append(coverage(estimate, np.log(true)))
            _note(errors, "Gaussian process", estimate.median, true)
            _note(errors, "additive", methods.additive(table, kept, hidden), true)
            completed = methods.matrix_completion(table, kept, hidden, seed)
            _note(errors, "Gavel's matrix completion", completed, true)
    yield from _means(f"{name}, one accelerator with two entries", errors)
    case = f"{name}, one accelerator with two entries, in 80 % intervals"
    yield Figure(case, "Gaussian process", float(np.mean(covered)))


def pairs(table: Measured, part: float, seeds: int) -> Iterator[Figure]:
    """Yield the errors of packed pairs; both jobs of a pair are measured together."""
    errors: dict[str, list[float]] = {}
    covered = []
    together = sorted({_pair(table, i) for i in range(len(table.keys))})
    number = {pair: i for i, pair in enumerate(together)}
    of = np.array([number[_pair(table, i)] for i in range(len(table.keys))])
    for seed in range(seeds):
        chosen, _ = split(len(together), part, seed)
        kept, hidden = np.flatnonzero(np.isin(of, chosen)), np.flatnonzero(~np.isin(of, chosen))
        true = table.value[hidden]
        estimate = methods.gaussian_process(table, kept, hidden, PAIR_TERMS)
        covered.append(coverage(estimate, np.log(true)))
        _note(errors, "Gaussian process", estimate.median, true)
        _note(errors, "additive", methods.additive(table, kept, hidden), true)
        _note(errors, "independence", np.ones(len(hidden)), true)
        for fingerprints, method in ((False, "matrix completion"), (True, "fingerprints")):
            estimated = methods.matrix_completion(
                table, kept, hidden, seed, fingerprints=fingerprints
            )
            _note(errors, f"Gavel's {method}", estimated, true)
    case = f"Gavel's pairs, {part:.0%} kept"
    yield from _means(case, errors)
    yield Figure(f"{case}, in 80 % intervals", "Gaussian process", float(np.mean(covered)))


def first_guesses(name: str, table: Measured) -> Iterator[Figure]:
    """Yield the errors of guessed ratios between accelerators, without any measurement."""
    sheets, hadare = data_sheets(), {}
    for accelerator in sorted({key.accelerator for key in table.keys}):
        sheet = sheets[accelerator]
        device = Device(sheet.matrix_tflops, sheet.memory_gib, sheet.pcie)
        hadare[accelerator] = np.log(first_guess(device, Training(1)))
    alone = [i for i, key in enumerate(table.keys) if key.gang == 1]
    by_workload: dict[str, list[int]] = {}
    for i in alone:
        by_workload.setdefault(table.keys[i].workload, []).append(i)
    guesses = {
        "data sheets": table.cells.guess,
        "HadarE's Eq. 10": np.array([hadare[key.accelerator] for key in table.keys]),
        "equal speeds": np.zeros(len(table.keys)),
    }
    for method, guess in guesses.items():
        errors = [
            abs(float(np.expm1(guess[i] - guess[j] - np.log(table.value[i] / table.value[j]))))
            for of in by_workload.values()
            for i in of
            for j in of
            if table.keys[i].accelerator != table.keys[j].accelerator
        ]
        yield Figure(f"{name}, ratios guessed", method, float(np.median(errors)))


def split(count: int, part: float, seed: int) -> tuple[IntArray, IntArray]:
    """Return which of the entries are kept and which are hidden."""
    order = np.random.default_rng(seed).permutation(count)
    kept = round(part * count)
    return np.sort(order[:kept]), np.sort(order[kept:])


def _variances(terms: Sequence[Term], table: Measured, rows: IntArray) -> Variances:
    cells = table.cells.take(rows)
    return fit_variances(terms, cells, np.log(table.value[rows]) - cells.guess)


def _pair(table: Measured, i: int) -> tuple[str, str, str]:
    key = table.keys[i]
    first, second = sorted((key.workload, key.partner or ""))
    return key.accelerator, first, second


def _without_twins(table: Measured, kept: IntArray, hidden: IntArray) -> IntArray:
    known = {table.keys[i]._replace(placement="consolidated") for i in kept.tolist()}
    return np.array(
        [
            i
            for i in hidden.tolist()
            if table.keys[i].gang > 1
            or table.keys[i]._replace(placement="consolidated") not in known
        ]
    )


def _note(
    errors: dict[str, list[float]], method: str, estimated: FloatArray, true: FloatArray
) -> None:
    median = float(np.median(relative_error(estimated, true)))
    errors.setdefault(method, []).append(median)


def _means(case: str, errors: dict[str, list[float]]) -> Iterator[Figure]:
    for method, medians in errors.items():
        yield Figure(case, method, float(np.mean(medians)))
