"""Progress patterns of tenants: bounded to compile, bounded to match."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.engines.base import LaunchOrder
from fairlead.engines.keeper import lease_dir
from fairlead.engines.keeper.printed_progress import PrintedProgress, raise_timeout
from fairlead.live.job_spec import JobSpec, read_spec
from fairlead.model.errors import InputError
from fairlead.model.submission.new_job import NewJob

SLOW_TO_COMPILE = "(?i)" + "[\\x00-\\U0010ffff]" * 50 + "(a)"
REFUSED = [
    SLOW_TO_COMPILE,
    "(?i)step (a)",
    "(x+)+y",
    "((?:a*)*)",
    "((?:a|b+){2,})",
    r"(a)\1",
    "(?=a)(b)",
    "(?<=a)(b)",
    "(?(1)a|b)(c)",
    "(" + "a" * 300 + ")",
]
ACCEPTED = [
    r"step (\d+)",
    r"(?P<steps>\d+)/\d+ \[",
    r"step[ =:]+(\d+(?:\.\d+)?)",
    r"^\[epoch \d+\].* iter (\d+)",
    r"(?:step|Schritt|шаг)\s*[:=]?\s*(\d+)",
    r"\((\d+)\+\)",
    r"[(*+]+ (\d{1,9})",
]


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, raise_timeout)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("pattern", REFUSED)
def test_a_pattern_that_may_explode_is_refused_in_no_time(pattern: str) -> None:
    began = time.process_time()
    with pytest.raises(InputError, match="progress_pattern"):
        NewJob(command=("x",), progress_pattern=pattern)
    assert time.process_time() - began < 0.1


@pytest.mark.parametrize("pattern", ACCEPTED)
def test_usual_patterns_are_accepted(pattern: str) -> None:
    assert NewJob(command=("x",), progress_pattern=pattern).progress_pattern == pattern


def test_a_restart_compiles_no_stored_pattern() -> None:
    stored = json.loads(JobSpec(command=("x",), id="j1").document())
    stored["progress_pattern"] = SLOW_TO_COMPILE
    began = time.process_time()
    assert read_spec(json.dumps(stored)).progress_pattern == SLOW_TO_COMPILE
    assert time.process_time() - began < 0.1


def test_a_keeper_gives_up_on_a_pattern_that_is_slow_to_compile() -> None:
    began = time.process_time()
    progress = PrintedProgress(SLOW_TO_COMPILE * 20)
    progress.read(b"step 1\n")
    assert time.process_time() - began < 3.0


def test_long_lines_and_slow_patterns_take_a_bounded_time() -> None:
    progress = PrintedProgress(r"(\d+)x")
    began = time.process_time()
    for _ in range(50):
        progress.read(b"1" * 65536 + b"\n")
    assert time.process_time() - began < 5.0


def test_the_time_limit_applies_while_a_job_prints_without_end(tmp_path: Path) -> None:
    program = "import os\nwhile True: os.write(1, b'1' * 4000 + b'\\n')"
    order = LaunchOrder(
        lease=1,
        job="j1",
        command=(sys.executable, "-c", program),
        directory="",
        devices=(("n", 0),),
        accelerators=("v100",),
        checkpoint_dir=str(tmp_path / "checkpoint"),
        log_dir=str(tmp_path / "logs"),
        time_limit_s=1.0,
        grace_s=0.5,
        progress_pattern=r"(\d+)x",
    )
    (tmp_path / "checkpoint").mkdir()
    lease_dir.write_order(tmp_path / "lease", order)
    command = [sys.executable, "-m", "fairlead.engines.keeper.keeper", str(tmp_path / "lease")]
    subprocess.run(command, check=True, timeout=60)
    ended = lease_dir.read_ended(tmp_path / "lease", 1)
    assert ended is not None
    assert "time limit" in ended.message
