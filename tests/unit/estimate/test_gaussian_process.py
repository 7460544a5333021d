"""Completion of speed tables by the Gaussian process, the factor model and the baselines."""

import numpy as np
import pytest

from fairlead.estimate.baselines.additive import fit_additive
from fairlead.estimate.baselines.matrix_completion import complete_matrix, match_fingerprints
from fairlead.estimate.cells import CONSOLIDATED, ONE_DEVICE, SPREAD, Cells, workload_name
from fairlead.estimate.factor_model import FactorModel
from fairlead.estimate.gaussian_process import (
    GaussianProcess,
    Variances,
    coverage,
    fit_variances,
    relative_error,
)
from fairlead.estimate.kernels import (
    PAIR_TERMS,
    SPEED_TERMS,
    Term,
    covariance,
    diagonal,
    matrices,
)
from fairlead.files.bundled import data_sheets
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.speeds.key import SpeedKey

MODELS = {"bert": 3.0, "gpt": 1.0, "cnn": 4.0, "gan": 2.0}
DEVICES = {"k80": 0.0, "v100": 1.5, "a100": 2.2}


def table() -> tuple[list[SpeedKey], FloatArray]:
    """Return cells and log speeds of a world with rules: models, batches, devices, gangs."""
    keys, values = [], []
    for model, level in MODELS.items():
        for size in (16, 32, 64):
            for device, power in DEVICES.items():
                for gang in (1, 2, 4):
                    for placement in ("consolidated", "spread"):
                        keys.append(SpeedKey(f"{model}-bs{size}", gang, device, placement))
                        lost = 0.3 * np.log2(gang) if placement == "spread" else 0.0
                        gain = 0.6 * np.log2(gang) - lost
                        values.append(level - 0.4 * np.log2(size) + power * level / 3 + gain)
    return keys, np.array(values)


KEYS, LOG_SPEED = table()
CELLS = Cells.of(KEYS, data_sheets())


def split(part: float, seed: int = 0) -> tuple[IntArray, IntArray]:
    order = np.random.default_rng(seed).permutation(len(KEYS))
    kept = round(part * len(KEYS))
    return order[:kept], order[kept:]


@pytest.mark.parametrize(
    ("workload", "model", "batch_size"),
    [
        ("ResNet-18 (batch size 64)", "ResNet-18", 64),
        ("bert-bs32", "bert", 32),
        ("gpt_batch_8", "gpt", 8),
        ("CycleGAN", "CycleGAN", None),
        ("train.py", "train.py", None),
        ("bs32", "bs32", None),
        ("cnn bs0", "cnn bs0", None),
    ],
)
def test_model_and_batch_size_are_read_from_the_name(
    workload: str, model: str, batch_size: int | None
) -> None:
    assert workload_name(workload) == (model, batch_size)


def test_cells_know_links_and_centre_batches_and_sheets() -> None:
    keys = [
        SpeedKey("a-bs16", 1, "k80", "spread"),
        SpeedKey("a-bs64", 2, "v100"),
        SpeedKey("b", 2, "unknown", "spread", "a-bs64"),
    ]
    cells = Cells.of(keys, data_sheets())
    assert cells.link.tolist() == [ONE_DEVICE, CONSOLIDATED, SPREAD]
    assert cells.batch.tolist() == [-1.0, 1.0, 0.0]
    assert cells.features[:2].sum(axis=0) == pytest.approx(0.0)
    assert cells.features[2].tolist() == [0.0, 0.0, 0.0]
    assert cells.guess[0] == pytest.approx(-cells.guess[1])
    assert cells.guess[0] < 0.0 == cells.guess[2]
    assert cells.partner.tolist() == [-1, -1, 0]
    assert cells.partner_batch.tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("terms", [SPEED_TERMS, PAIR_TERMS])
def test_covariances_are_symmetric_and_their_diagonal_is_the_stated_one(
    terms: tuple[Term, ...],
) -> None:
    variances = Variances.default(terms).terms
    some = CELLS.take(np.arange(0, len(KEYS), 5))
    whole = covariance(terms, variances, some, some)
    assert whole == pytest.approx(whole.T)
    assert diagonal(terms, variances, some) == pytest.approx(np.diagonal(whole))
    assert np.linalg.eigvalsh(whole).min() > -1e-9
    assert len(list(matrices(terms, some, some))) == len(terms)


def test_completes_a_table_better_than_an_additive_fit_and_knows_its_doubt() -> None:
    kept, hidden = split(0.25)
    known, unknown = CELLS.take(kept), CELLS.take(hidden)
    process = GaussianProcess(SPEED_TERMS, known, LOG_SPEED[kept])
    estimate = process.predict(unknown)
    true = np.exp(LOG_SPEED[hidden])
    error = np.median(relative_error(estimate.median, true))
    additive = np.exp(fit_additive(known, LOG_SPEED[kept], unknown))
    assert error < 0.05
    assert error < 0.4 * np.median(relative_error(additive, true))
    assert coverage(estimate, LOG_SPEED[hidden]) > 0.6
    low, high = estimate.interval()
    assert (low < estimate.median).all()
    assert (estimate.median < high).all()
    certain = process.predict(known)
    assert certain.sd.max() < estimate.sd.max()
    assert certain.mean == pytest.approx(LOG_SPEED[kept], abs=0.1)


def test_two_measurements_of_a_new_accelerator_are_enough_for_its_order_of_magnitude() -> None:
    new = np.flatnonzero([key.accelerator == "a100" for key in KEYS])
    kept = np.concatenate([np.setdiff1d(np.arange(len(KEYS)), new), new[[3, 40]]])
    hidden = np.setdiff1d(new, kept)
    process = GaussianProcess(SPEED_TERMS, CELLS.take(kept), LOG_SPEED[kept])
    estimate = process.predict(CELLS.take(hidden))
    assert np.median(np.abs(estimate.mean - LOG_SPEED[hidden])) < 0.35
    known = process.predict(CELLS.take(kept[:50]))
    assert np.median(estimate.sd) > 3 * np.median(known.sd)


def test_a_fit_finds_what_explains_a_table() -> None:
    """Of speeds that differ by model only, the model's variance grows and others shrink."""
    level = np.array([MODELS[workload_name(key.workload).model] for key in KEYS])
    fitted = fit_variances(SPEED_TERMS, CELLS, level - level.mean()).terms
    before = Variances.default(SPEED_TERMS).terms
    names = [term.factors for term in SPEED_TERMS]
    model, gang = names.index(("model",)), names.index(("gang slope",))
    assert fitted[model] > 0.8 * before[model]
    assert fitted[gang] < 0.8 * before[gang]
    other = [i for i, factors in enumerate(names) if len(factors) > 2]
    assert (fitted[other] < before[other]).all()


def test_declared_speeds_count_less_than_measured_ones() -> None:
    twice = Cells.of([KEYS[0], KEYS[0]], data_sheets())
    process = GaussianProcess(
        SPEED_TERMS,
        twice,
        np.log([1.0, 2.0]),
        Variances.default(SPEED_TERMS),
        noise=np.array([0.0, 0.5]),
    )
    assert process.predict(twice).median[0] == pytest.approx(1.0, rel=0.02)


def test_factor_model_completes_a_table_of_few_properties() -> None:
    rng = np.random.default_rng(3)
    truth = rng.normal(0, 2, (200, 1)) + rng.normal(0, 0.5, 12)
    truth = truth + rng.normal(size=(200, 2)) @ rng.normal(0, 0.4, (2, 12))
    measured = truth + rng.normal(0, 0.03, truth.shape)
    known = rng.random(truth.shape) < 0.5
    known[0] = False
    estimate = FactorModel.fit(measured, known, rank=3).complete(measured, known)
    hidden = ~known
    hidden[0] = False
    assert np.median(np.abs(estimate.mean - truth)[hidden]) < 0.05
    assert np.mean(np.abs(estimate.mean - measured)[hidden] < 1.2816 * estimate.sd[hidden]) > 0.7
    # Of a workload without any speed only the mean is known, and the doubt says so.
    assert estimate.sd[0].min() > 2.0


def test_matrix_completion_recovers_a_matrix_of_low_rank_and_keeps_what_is_known() -> None:
    rng = np.random.default_rng(0)
    truth = rng.uniform(0.2, 0.7, (30, 2)) @ rng.uniform(0.2, 0.7, (2, 20))
    known = rng.random(truth.shape) < 0.7
    completed = complete_matrix(truth, known, rng=np.random.default_rng(1), rank=2)
    assert completed[known].tolist() == truth[known].tolist()
    assert np.median(np.abs(completed - truth)[~known]) < 0.02
    again = complete_matrix(truth, known, rng=np.random.default_rng(1), rank=2)
    assert again.tolist() == completed.tolist()


def test_fingerprints_take_unknown_entries_from_the_closest_row() -> None:
    completed = np.array([[1.0, 0.5, 0.2], [0.9, 0.45, 0.3], [0.1, 0.9, 0.9]])
    known = np.array([[True, True, False], [True, True, True], [True, True, True]])
    matched = match_fingerprints(completed, known)
    assert matched.tolist() == [[1.0, 0.5, 0.3], [0.9, 0.45, 0.3], [0.1, 0.9, 0.9]]
