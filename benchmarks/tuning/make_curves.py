"""Makes the learning curves of a small network on data that scikit-learn brings along.

    python -m pip install scikit-learn
    python -m benchmarks.tuning.make_curves digits

Writes ``digits.json.gz`` or ``breast_cancer.json.gz``, files for ``fairlead compare --search``.
Trains 240 configurations, drawn at random from a space of 12 dimensions, for 100 epochs each, and
keeps the accuracy on the validation set after every epoch. Configuration ``i`` draws from
``default_rng(i)`` alone, so that any part can be made again. Takes some minutes of one core.
"""

import argparse
import gzip
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

# Small matrices: more threads of BLAS cost more than they bring. Read when numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray

FOLDER = Path(__file__).parent
CONFIGURATIONS, EPOCHS = 240, 100
REPORT_S = 60.0
"""seconds of an epoch in simulations, for every configuration"""

Parameters = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Samples:
    """Inputs and labels in random order; the first are for training, the others for validation."""

    source: str
    inputs: FloatArray
    labels: IntArray
    training: int


def draw(rng: np.random.Generator) -> dict[str, Any]:
    """Return a configuration: a point of the space of 12 dimensions."""
    return {
        "learning_rate": _rounded(10 ** rng.uniform(-5, 0)),
        "decay": _rounded(10 ** rng.uniform(-3, -1)),
        "momentum": _rounded(rng.uniform(0.0, 0.99)),
        "optimizer": str(rng.choice(["sgd", "adam"])),
        "batch_size": int(rng.choice([32, 64, 128, 256])),
        "layers": int(rng.integers(1, 4)),
        "width": int(rng.choice([8, 16, 32, 64, 128])),
        "activation": str(rng.choice(["relu", "tanh"])),
        "initial_scale": _rounded(10 ** rng.uniform(-1.5, 0.5)),
        "dropout": _rounded(rng.uniform(0.0, 0.7)),
        "weight_decay": _rounded(10 ** rng.uniform(-6, -1)),
        "input_noise": _rounded(rng.uniform(0.0, 0.5)),
    }


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


class Network:
    """A multilayer perceptron with its optimizer's state."""

    def __init__(
        self, inputs: int, outputs: int, parameters: Parameters, rng: np.random.Generator
    ) -> None:
        self._p, self._rng = parameters, rng
        sizes = [inputs, *[parameters["width"]] * parameters["layers"], outputs]
        scale = parameters["initial_scale"]
        self.weights: list[FloatArray] = []
        for before, after in pairwise(sizes):
            self.weights.append(rng.normal(0.0, scale / np.sqrt(before), (before, after)))
            self.weights.append(np.zeros(after))
        self._first = [np.zeros_like(w) for w in self.weights]
        self._second = [np.zeros_like(w) for w in self.weights]
        self._updates = 0

    def accuracy(self, images: FloatArray, labels: IntArray) -> float:
        """Return the fraction of images that are classified correctly."""
        scores = self._forward(images, dropout=0.0)[0][-1]
        return float((scores.argmax(axis=1) == labels).mean())

    def update(self, images: FloatArray, labels: IntArray) -> None:
        """Make one step on a batch."""
        noise = self._rng.normal(0.0, self._p["input_noise"], images.shape)
        layers, slopes = self._forward(images + noise, dropout=self._p["dropout"])
        shifted = layers[-1] - layers[-1].max(axis=1, keepdims=True)
        error = np.exp(shifted)
        error /= error.sum(axis=1, keepdims=True)
        error[np.arange(len(labels)), labels] -= 1.0
        error /= len(labels)
        gradients: list[FloatArray] = []
        for i in range(len(self.weights) - 2, -1, -2):
            gradients += [error.sum(axis=0), layers[i // 2].T @ error]
            if i:
                error = (error @ self.weights[i].T) * slopes[i // 2 - 1]
        self._apply(gradients[::-1])

    def _forward(
        self, images: FloatArray, dropout: float
    ) -> tuple[list[FloatArray], list[FloatArray]]:
        """Return the values of all layers, and the slopes of the hidden ones."""
        layers, slopes = [images], []
        for i in range(0, len(self.weights), 2):
            values = layers[-1] @ self.weights[i] + self.weights[i + 1]
            if i < len(self.weights) - 2:
                relu = self._p["activation"] == "relu"
                values = np.maximum(values, 0.0) if relu else np.tanh(values)
                slope = (values > 0).astype(float) if relu else 1.0 - values**2
                if dropout:
                    kept = (self._rng.random(values.shape) >= dropout) / (1.0 - dropout)
                    values, slope = values * kept, slope * kept
                slopes.append(slope)
            layers.append(values)
        return layers, slopes

    def _apply(self, gradients: list[FloatArray]) -> None:
        self._updates += 1
        beta, adaptive = self._p["momentum"], self._p["optimizer"] == "adam"
        for i, slope in enumerate(gradients):
            gradient = slope + self._p["weight_decay"] * self.weights[i]
            rate = self._p["learning_rate"] / (1.0 + self._p["decay"] * self._updates)
            self._first[i] = beta * self._first[i] + (1.0 - beta) * gradient
            step = self._first[i] / (1.0 - beta**self._updates) if adaptive else self._first[i]
            if adaptive:
                self._second[i] = 0.999 * self._second[i] + 0.001 * gradient**2
                step = step / (np.sqrt(self._second[i] / (1.0 - 0.999**self._updates)) + 1e-8)
            self.weights[i] -= rate * step


def train(number: int, samples: Samples) -> tuple[Parameters, list[float]]:
    """Return a configuration and its accuracy after every epoch."""
    rng = np.random.default_rng(number)
    parameters = draw(rng)
    inputs, labels, training = samples.inputs, samples.labels, samples.training
    network = Network(inputs.shape[1], int(labels.max()) + 1, parameters, rng)
    curve = []
    for _ in range(EPOCHS):
        order, batch = rng.permutation(training), parameters["batch_size"]
        for start in range(0, training, batch):
            rows = order[start : start + batch]
            network.update(inputs[rows], labels[rows])
        curve.append(network.accuracy(inputs[training:], labels[training:]))
    return parameters, curve


def digits() -> Samples:
    """Return images of handwritten digits."""
    from sklearn.datasets import load_digits  # noqa: PLC0415  # only this script needs it

    data = load_digits()
    return _shuffled("digits", data.data / 16.0, data.target, training=1000)


def breast_cancer() -> Samples:
    """Return measurements of tumours, malignant or benign."""
    from sklearn.datasets import load_breast_cancer  # noqa: PLC0415

    data = load_breast_cancer()
    spread = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    return _shuffled("breast cancer", spread, data.target, training=300)


def _shuffled(name: str, inputs: FloatArray, labels: IntArray, *, training: int) -> Samples:
    import sklearn  # noqa: PLC0415

    order = np.random.default_rng(0).permutation(len(labels))
    source = f"{name} of scikit-learn {sklearn.__version__}"
    return Samples(source, inputs[order], labels[order], training)


DATA: Mapping[str, Callable[[], Samples]] = {"digits": digits, "breast_cancer": breast_cancer}


def main() -> None:
    """Train all configurations and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", choices=DATA)
    parser.add_argument("--configurations", type=int, default=CONFIGURATIONS)
    arguments = parser.parse_args()
    samples, rows = DATA[arguments.data](), []
    with np.errstate(all="ignore"):  # configurations that diverge end at the accuracy of a guess
        for number in range(arguments.configurations):
            parameters, curve = train(number, samples)
            rows.append({"parameters": parameters, "values": [round(a, 4) for a in curve]})
    made = {
        "made_by": f"python -m benchmarks.tuning.make_curves {arguments.data}",
        "data": f"{samples.source}, {samples.training} of {len(samples.labels)} samples for"
        " training, the others for validation",
        "metric": "accuracy",
        "direction": "maximize",
        "report_s": REPORT_S,
        "trials": rows,
    }
    path = FOLDER / f"{arguments.data}.json.gz"
    text = json.dumps(made, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(text, 9, mtime=0))
    print(f"{path}: {len(rows)} configurations, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
