"""A line fitted by gradient descent: the model that jobs of tests train, and its exact result."""

import json
from pathlib import Path
from typing import Any

LINE = '''
import json, os, sys, time
from fairlead import job

class Line:
    """A line fitted by gradient descent."""
    def __init__(self): self.a, self.b = 0.0, 0.0
    def state_dict(self): return {"a": self.a, "b": self.b}
    def load_state_dict(self, state): self.a, self.b = state["a"], state["b"]
    def step(self, i):
        x = (i * 37 % 101) / 101
        error = self.a * x + self.b - (3 * x + 1)
        self.a -= 0.2 * error * x
        self.b -= 0.2 * error
        return error * error
'''
"""source of the model that jobs of tests train"""


def check_result(path: Path, steps: int) -> None:
    """Check that a job's result is the one of an uninterrupted run: no step lost or repeated."""
    result: dict[str, Any] = json.loads(path.read_text())
    a, b, losses = _fit(steps)
    assert (result["a"], result["b"]) == (a, b)
    assert result["seen"] == losses
    assert sum(losses[-20:]) < 0.1 * sum(losses[:20])


def _fit(steps: int) -> tuple[float, float, list[float]]:
    a = b = 0.0
    losses = []
    for i in range(steps):
        x = (i * 37 % 101) / 101
        error = a * x + b - (3 * x + 1)
        a -= 0.2 * error * x
        b -= 0.2 * error
        losses.append(error * error)
    return a, b, losses
