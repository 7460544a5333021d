"""Readings of two jobs on one device tell their speeds alone and packed."""

from benchmarks.physical.packing.outcome import Outcome, Reading, outcome


def readings(*phases: tuple[int, float, float, bool]) -> list[Reading]:
    """Return readings: count, speeds of both jobs, and whether they share the device."""
    listed = [
        ((one, other), together) for count, one, other, together in phases for _ in range(count)
    ]
    return [
        Reading(0.5 * i, speeds, together, False) for i, (speeds, together) in enumerate(listed)
    ]


def test_speeds_alone_and_beside_are_those_long_after_a_change() -> None:
    seen = readings(
        (3, 0.0, 0.0, False),
        (9, 10.0, 0.0, False),
        (9, 0.0, 20.0, False),
        (4, 10.0, 20.0, True),  # still those alone
        (5, 6.0, 14.0, True),
    )
    kept = outcome(seen)
    assert kept == Outcome((10.0, 20.0), (6.0, 14.0), True)
    assert round(kept.gain, 3) == 1.3
    undone = outcome([*seen, *readings((2, 10.0, 0.0, False))])
    assert undone is not None
    assert not undone.kept


def test_a_speed_that_was_never_read_is_missing() -> None:
    assert outcome(readings((9, 10.0, 0.0, False), (9, 6.0, 14.0, True))) is None
    assert outcome(readings((9, 10.0, 0.0, False), (9, 0.0, 20.0, False))) is None
