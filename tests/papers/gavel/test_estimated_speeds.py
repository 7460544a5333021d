"""Gavel's tables (§6, §7.6) completed from a part of their entries, against Gavel's own method.

`python -m benchmarks.estimate` prints all figures over 20 seeds.
"""

import numpy as np
import pytest
from benchmarks.estimate import completion, methods, tables
from tests.support.shared_data import needs_shared

from fairlead.estimate.gaussian_process import relative_error
from fairlead.estimate.kernels import PAIR_TERMS, SPEED_TERMS

pytestmark = [needs_shared, pytest.mark.reference]


def test_a_fifth_of_the_table_is_enough_for_the_rest() -> None:
    figures = {
        (figure.case, figure.method): figure.value
        for figure in completion.hidden_at_random("Gavel", tables.gavel_speeds(), 0.2, 3)
    }
    ours = figures["Gavel, 20% kept", "Gaussian process"]
    assert ours <= 0.16
    assert ours < 0.6 * figures["Gavel, 20% kept", "additive"]
    assert ours < 0.6 * figures["Gavel, 20% kept", "Gavel's matrix completion"]
    assert 0.70 <= figures["Gavel, 20% kept, in 80 % intervals", "Gaussian process"] <= 0.88


def test_two_measurements_make_an_accelerator_known() -> None:
    table = tables.gavel_speeds()
    of = np.flatnonzero([key.accelerator == "p100" for key in table.keys])
    rng = np.random.default_rng(0)
    # A third of the other accelerators' entries keeps the test short.
    others = rng.choice(np.setdiff1d(np.arange(len(table.keys)), of), 110, replace=False)
    two = rng.choice(of, 2, replace=False)
    estimate = methods.gaussian_process(
        table, np.concatenate([others, two]), np.setdiff1d(of, two), SPEED_TERMS
    )
    assert np.median(relative_error(estimate.median, table.value[np.setdiff1d(of, two)])) < 0.40


def test_a_fifth_of_the_pairs_predicts_the_others_better_than_fingerprints() -> None:
    table = tables.gavel_pairs()
    chosen = np.flatnonzero([key.accelerator == "v100" for key in table.keys])
    rng = np.random.default_rng(0)
    kept = rng.choice(chosen, len(chosen) // 5, replace=False)
    hidden = np.setdiff1d(chosen, kept)
    true = table.value[hidden]
    estimate = methods.gaussian_process(table, kept, hidden, PAIR_TERMS)
    ours = np.median(relative_error(estimate.median, true))
    gavel = methods.matrix_completion(table, kept, hidden, 0, fingerprints=True)
    assert ours < 0.5 * np.median(relative_error(np.ones(len(true)), true))
    assert ours < 0.5 * np.median(relative_error(gavel, true))
