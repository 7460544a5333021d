"""One trial of a search on GPUs: ten-fold cross-validation of a small network with PyTorch.

    python -m benchmarks.tuning.trial CONFIGURATION --digits FILE.npz --epochs N [--probe]

Configuration and network are those of make_curves.py, with batches of 32. A step is an epoch of
one fold; after every third epoch of all folds the trial reports the accuracy on the samples that
the folds leave out. ``--probe`` prints the steps per second instead.
"""

import argparse
import math
import time
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from benchmarks.tuning.make_curves import draw

from fairlead import job

FOLDS, REPORT_EPOCHS = 10, 3
_BATCH = 32
_PROBED = 20
"""steps that a probe times"""


class Folds:
    """A multilayer perceptron and its optimizer for each fold, all in three tensors."""

    def __init__(self, configuration: int, inputs: Any, labels: Any) -> None:
        self._p = draw(np.random.default_rng(configuration))
        self._inputs, self._labels = inputs, labels
        self._fold = torch.arange(len(labels), device=inputs.device) % FOLDS
        outputs = int(labels.max()) + 1
        self._sizes = [inputs.shape[1], *[self._p["width"]] * self._p["layers"], outputs]
        torch.manual_seed(configuration)
        parts = []
        for before, after in pairwise(self._sizes):
            spread = self._p["initial_scale"] / math.sqrt(before)
            parts += [spread * torch.randn(FOLDS, before * after), torch.zeros(FOLDS, after)]
        self.weights = torch.cat(parts, 1).to(inputs.device)
        self.first = torch.zeros_like(self.weights)
        self.second = torch.zeros_like(self.weights)
        self.updates = {"made": [0] * FOLDS}

    def train(self, fold: int) -> None:
        """Train one epoch of a fold."""
        rows = (self._fold != fold).nonzero().squeeze(1)
        rows = rows[torch.randperm(len(rows), device=rows.device)]
        for batch in rows.split(_BATCH):
            weights = self.weights[fold].detach().requires_grad_()
            images = self._inputs[batch]
            images = images + self._p["input_noise"] * torch.randn_like(images)
            scores = self._scores(weights, images, dropout=self._p["dropout"])
            torch.nn.functional.cross_entropy(scores, self._labels[batch]).backward()
            self._apply(fold, weights.grad)

    def accuracy(self) -> float:
        """Return the fraction of samples that the folds without them classify correctly."""
        right = torch.zeros((), device=self._inputs.device)
        with torch.no_grad():
            for fold in range(FOLDS):
                rows = self._fold == fold
                scores = self._scores(self.weights[fold], self._inputs[rows], dropout=0.0)
                right += (scores.argmax(1) == self._labels[rows]).sum()
        return float(right.item()) / len(self._labels)

    def _scores(self, weights: Any, values: Any, *, dropout: float) -> Any:
        layers, at = list(pairwise(self._sizes)), 0
        for number, (before, after) in enumerate(layers, 1):
            matrix = weights[at : at + before * after].view(before, after)
            at += before * after
            values = torch.addmm(weights[at : at + after], values, matrix)
            at += after
            if number < len(layers):
                values = values.relu() if self._p["activation"] == "relu" else values.tanh()
                values = torch.nn.functional.dropout(values, dropout) if dropout else values
        return values

    def _apply(self, fold: int, gradient: Any) -> None:
        self.updates["made"][fold] += 1
        made, beta = self.updates["made"][fold], self._p["momentum"]
        weights, first, second = self.weights[fold], self.first[fold], self.second[fold]
        gradient = gradient + self._p["weight_decay"] * weights
        rate = self._p["learning_rate"] / (1.0 + self._p["decay"] * made)
        first.mul_(beta).add_(gradient, alpha=1.0 - beta)
        if self._p["optimizer"] == "adam":
            second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            spread = (second / (1.0 - 0.999**made)).sqrt_().add_(1e-8)
            weights.addcdiv_(first, spread, value=-rate / (1.0 - beta**made))
        else:
            weights.add_(first, alpha=-rate)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("configuration", type=int)
    parser.add_argument("--digits", required=True)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--probe", action="store_true")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = np.load(options.digits)
    inputs = torch.tensor(data["inputs"], dtype=torch.float32, device=device)
    folds = Folds(options.configuration, inputs, torch.tensor(data["labels"], device=device))
    if options.probe:
        print(_steps_per_s(folds))
        return
    run = job.attach()
    run.register(
        weights=folds.weights, first=folds.first, second=folds.second, updates=folds.updates
    )
    every = FOLDS * REPORT_EPOCHS
    for step in run.steps(range(options.epochs * FOLDS)):
        folds.train(step % FOLDS)
        if (step + 1) % every == 0:
            run.report(accuracy=folds.accuracy())


def _steps_per_s(folds: Folds) -> float:
    folds.train(0)
    folds.accuracy()
    began_at = time.monotonic()
    for step in range(_PROBED):
        folds.train(step % FOLDS)
    folds.accuracy()  # waits for the device
    return _PROBED / (time.monotonic() - began_at)


if __name__ == "__main__":
    main()
