"""Example training script: a small numpy network, with or without the scheduler.

``python -m fairlead.demo.train STEPS [SEED]``
"""

import sys
from typing import Any

import numpy as np

from fairlead import job


class Network:
    """One hidden layer, trained by gradient descent with momentum."""

    def __init__(self, rng: np.random.Generator, width: int = 32) -> None:
        self.weights = [rng.normal(0, 0.3, (8, width)), rng.normal(0, 0.3, (width, 1))]
        self.speeds = [np.zeros_like(w) for w in self.weights]

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"weights": self.weights, "speeds": self.speeds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self.weights, self.speeds = state["weights"], state["speeds"]

    def step(self, inputs: Any, targets: Any, rate: float = 0.05) -> float:
        """Make one step on a batch and return its loss."""
        hidden = np.tanh(inputs @ self.weights[0])
        error = hidden @ self.weights[1] - targets
        back = 2 * error / len(inputs)
        inner = (back @ self.weights[1].T) * (1 - hidden**2)
        for i, slope in enumerate((inputs.T @ inner, hidden.T @ back)):
            self.speeds[i] = 0.9 * self.speeds[i] - rate * slope
            self.weights[i] = self.weights[i] + self.speeds[i]
        return float((error**2).mean())


def main() -> None:
    """Train for STEPS steps; the data of step i depend only on i, so preemption is harmless."""
    total = int(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    run = job.attach()
    network = Network(np.random.default_rng(seed))
    run.register(network=network)
    for i in run.steps(range(total)):
        rng = np.random.default_rng([seed, i])
        inputs = rng.normal(size=(16, 8))
        targets = np.sin(inputs.sum(axis=1, keepdims=True))
        run.report(loss=network.step(inputs, targets))


if __name__ == "__main__":
    main()
