"""Measured speeds: the mean of all steps, and an interval from the scatter of blocks."""

import json
import math
import statistics
import sys
from pathlib import Path

import pytest

from fairlead.cli.profile.here import run_here
from fairlead.files import read_speeds
from fairlead.files.speeds.measured import MeasuredSpeed, add_speeds
from fairlead.job.profile import BLOCKS, Speed, StepTimer
from fairlead.model.errors import InputError
from fairlead.model.speeds.table import SpeedKey

LOOP = """
import sys
from fairlead import job
run = job.attach()
for step in run.steps(range(int(sys.argv[1]))):
    pass
open("ended", "w").close()
"""


def measure(step_s: list[float], warmup: int) -> Speed:
    """Return the speed of steps that take these times."""
    now = 0.0
    timer = StepTimer(warmup, len(step_s) - warmup, clock=lambda: now)
    for number, seconds in enumerate(step_s, 1):
        now += seconds
        speed = timer.step_ended()
        assert (speed is not None) == (number == len(step_s))
    assert speed is not None
    return speed


def test_the_warm_up_does_not_count() -> None:
    assert measure([9.0] * 5 + [0.5] * 40, 5) == pytest.approx((2.0, 2.0, 2.0))


def test_the_interval_is_students_for_the_blocks_means() -> None:
    times = [0.1 + 0.01 * (i % 7) for i in range(3 * BLOCKS)]
    means = [statistics.mean(times[i : i + 3]) for i in range(0, len(times), 3)]
    mean = statistics.mean(times)
    half = 2.093 * statistics.stdev(means) / math.sqrt(BLOCKS)
    expected = (1 / mean, 1 / (mean + half), 1 / (mean - half))
    assert measure([1.0, *times], 1) == pytest.approx(expected)
    with pytest.raises(ValueError, match="FAIRLEAD_PROFILE: expected WARMUP:STEPS"):
        StepTimer(0, 100)


def test_a_program_is_measured_here_and_ends_after_its_steps(tmp_path: Path) -> None:
    script = tmp_path / "loop.py"
    script.write_text(LOOP)
    seen: list[str] = []

    def run(*arguments: str) -> dict[str, Speed]:
        command = [sys.executable, str(script), *arguments]
        return run_here(
            command, tmp_path, {"cpu": ""}, steps=(2, 40), timeout_s=60, seen=seen.append
        )

    speed = run("1000000000")["cpu"]
    assert 0 < speed.low <= speed.steps_per_s <= speed.high
    assert seen == ["cpu"]
    assert not (tmp_path / "ended").exists()
    with pytest.raises(InputError, match=r"^cpu: the command ended before all steps .*run.steps"):
        run("41")
    with pytest.raises(InputError, match=r"^cpu: the command exited with 1 \(IndexError: "):
        run()


def test_measured_speeds_join_a_table_and_replace_their_own_rows(tmp_path: Path) -> None:
    path = tmp_path / "speeds.csv"
    path.write_text(
        "workload,gang,accelerator,steps_per_s,partner,partner_steps_per_s\n"
        "a,1,v100,1,,\na,1,k80,2,,\na,1,v100,3,b,4\n"
    )
    for _ in range(2):
        add_speeds(path, [MeasuredSpeed("a", 1, "v100", 10.123456789, 9.0, 11.5)])
    table = read_speeds(path).steps_per_s
    assert table[SpeedKey("a", 1, "v100", "consolidated")] == 10.1235
    assert table[SpeedKey("a", 1, "k80", "consolidated")] == 2.0
    assert table[SpeedKey("a", 1, "v100", "consolidated", "b")] == 3.0
    assert "a,1,v100,,,10.1235,,9,11.5" in path.read_text()
    path.write_text(json.dumps({"v100": {}}))
    with pytest.raises(InputError, match="all speeds are 0"):
        add_speeds(path, [])
