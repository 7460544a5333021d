"""Speeds as text."""


def speed_text(steps_per_s: float, digits: int = 4) -> str:
    """Return ``1 step/s`` or ``2.5 steps/s``."""
    number = f"{steps_per_s:.{digits}g}"
    return f"{number} {'step' if number == '1' else 'steps'}/s"
