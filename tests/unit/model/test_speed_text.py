"""Speeds as text."""

import pytest

from fairlead.model.speeds.text import speed_text


@pytest.mark.parametrize(
    ("speed", "text"),
    [(1.0, "1 step/s"), (1.00001, "1 step/s"), (2.5, "2.5 steps/s"), (0.0, "0 steps/s")],
)
def test_one_step_is_singular(speed: float, text: str) -> None:
    assert speed_text(speed) == text
