"""A search on GPUs: its recorded runs, and the network that its trials train."""

import copy
import json
from pathlib import Path

import pytest
from benchmarks.tuning import gpus

RUNS = Path(gpus.__file__).with_name("runs")


def recorded(policy: str) -> gpus.Outcome:
    return gpus.Outcome(**json.loads((RUNS / f"{policy}.json").read_text(encoding="utf-8")))


def test_time_slicing_has_found_the_best_configuration_before_fifo() -> None:
    sliced, fifo = recorded("gandiva"), recorded("fifo")
    assert sliced.configurations == fifo.configurations == gpus.configurations(16)
    assert gpus.show(sliced) == gpus.show(fifo) == 0
    found_s = sliced.found_s(0.965)
    assert found_s is not None
    assert fifo.found_s(0.965) is None
    assert found_s < fifo.ended_s


def test_folds_learn_and_their_tensors_are_their_state() -> None:
    torch = pytest.importorskip("torch")
    from benchmarks.tuning.trial import FOLDS, Folds  # noqa: PLC0415  # needs PyTorch

    torch.manual_seed(0)
    labels = torch.arange(200) % 2
    inputs = torch.randn(200, 4) * 0.1 + labels[:, None]
    folds = Folds(138, inputs, labels)
    for _ in range(3):
        for fold in range(FOLDS):
            folds.train(fold)
    assert folds.accuracy() > 0.95
    other = Folds(138, inputs, labels)
    for name in ("weights", "first", "second"):
        getattr(other, name).copy_(getattr(folds, name))
    other.updates.update(copy.deepcopy(folds.updates))
    for each in (folds, other):
        torch.manual_seed(1)
        each.train(0)
    assert torch.equal(folds.weights, other.weights)
