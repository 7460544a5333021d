"""Speeds of gangs whose devices are of several accelerators."""

import pytest

from fairlead.model.speeds.elastic import speed_of_size
from fairlead.model.speeds.table import SpeedKey, SpeedTable

TABLE = SpeedTable(
    {
        SpeedKey("m", 1, "v100"): 4.0,
        SpeedKey("m", 2, "v100"): 7.0,
        SpeedKey("m", 1, "p100"): 2.0,
        SpeedKey("m", 2, "p100"): 4.0,
        SpeedKey("m", 4, "p100"): 6.0,
        SpeedKey("m", 1, "k80"): 1.0,
        SpeedKey("m", 2, "k80"): 2.0,
        SpeedKey("m", 4, "k80"): 4.0,
        SpeedKey("m", 1, "t4"): 1.0,
        SpeedKey("m", 4, "t4"): 0.0,
        SpeedKey("n", 1, "v100"): 3.0,
        SpeedKey("n", 2, "v100"): 5.0,
    }
)


def test_a_mixed_gang_runs_at_the_speed_of_its_slowest_member() -> None:
    assert TABLE.speed("m", ["p100", "k80", "p100", "k80"]) == 4.0
    assert TABLE.speed("m", ["v100", "k80"]) == 2.0


def test_a_gang_not_measured_on_an_accelerator_is_scaled_as_on_the_others() -> None:
    # Twice the gang is 1.5 times as fast on P100, and 2 times on K80.
    assert TABLE.member_speed("m", 4, "v100") == pytest.approx(7.0 * 1.75)
    assert TABLE.speed("m", ["v100", "v100", "v100", "p100"]) == 6.0


def test_a_gang_scales_in_proportion_without_measurements() -> None:
    assert TABLE.member_speed("n", 4, "v100") == pytest.approx(2 * 5.0)


def test_a_gang_with_measured_speed_0_does_not_run_mixed_either() -> None:
    assert TABLE.member_speed("m", 4, "t4") == 0.0
    assert TABLE.speed("m", ["t4", "k80", "k80", "k80"]) == 0.0


def test_a_gang_on_one_accelerator_has_measured_speeds_only() -> None:
    assert TABLE.speed("m", ["v100"] * 4) == 0.0
    assert TABLE.speed("m", ["v100"] * 2) == 7.0


def test_an_elastic_gang_of_a_size_without_a_row_runs_in_proportion_to_its_declared_gang() -> None:
    table = SpeedTable({SpeedKey("m", gang, "v100"): speed for gang, speed in ((1, 5), (2, 8))})
    speeds = [speed_of_size(table, "m", ("v100",) * size, gang=2) for size in (1, 2, 3, 4)]
    assert speeds == [5.0, 8.0, 12.0, 16.0]
    assert speed_of_size(TABLE, "m", ("t4",) * 3, gang=1) == 3.0
    assert speed_of_size(TABLE, "m", ("t4",) * 4, gang=1) == 0.0  # as the table has it
