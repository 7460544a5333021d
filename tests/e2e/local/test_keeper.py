"""The keeper of a gang: who hears the word to stop, what it makes of their ends and output."""

import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fairlead.engines.base import Ended, Order
from fairlead.engines.keeper import lease_dir
from fairlead.job.exit_status import LEFT

# Rank 1 takes its time before it listens; both say that they were told.
MEMBER = f"""
import os, signal, sys, time
rank = os.environ["RANK"]
if rank == "1": time.sleep(1.5)
def leave(*_):
    open(sys.argv[1] + rank, "w").close()
    sys.exit({LEFT})
signal.signal(signal.SIGTERM, leave)
time.sleep(60)
"""


def kept(
    root: Path, *command: str, devices: int = 1, stop: str = "", **more: Any
) -> tuple[Ended, float]:
    """Keep a gang to its end; return that, and how long it took from the word to stop.

    That is given as soon as the file ``stop`` is there, if it is named.
    """
    (root / "lease").mkdir()
    order = Order(
        lease=1,
        job="j1",
        command=command,
        directory=str(root),
        devices=tuple(("here", number) for number in range(devices)),
        accelerators=("v100",) * devices,
        checkpoint_dir=str(root / "checkpoint"),
        log_dir=str(root / "logs"),
        **more,
    )
    lease_dir.write_order(root / "lease", order)
    keeping = [sys.executable, "-m", "fairlead.engines.keeper.keeper", str(root / "lease")]
    with subprocess.Popen(keeping) as keeper:
        until = time.monotonic() + 30.0
        while stop and not (root / stop).exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        began = time.monotonic()
        if stop:
            keeper.send_signal(signal.SIGTERM)
        keeper.wait(60.0)
    ended = lease_dir.read_ended(root / "lease")
    assert ended is not None
    return ended, time.monotonic() - began


def of_lease(root: Path) -> list[Path]:
    """Return the processes that were started with what a member of the lease is given."""
    mark, found = f"FAIRLEAD_CHECKPOINT_DIR={root / 'checkpoint'}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                found.append(path)
    return found


def stopped_early(root: Path, devices: int) -> tuple[Ended, float]:
    """Keep a gang that is told to stop as soon as it runs; return its end, and after what time."""
    (root / "member.py").write_text(MEMBER)
    told = sys.executable, str(root / "member.py"), str(root / "told")
    return kept(root, *told, devices=devices, stop="lease/members.json")


def test_a_member_that_still_loads_is_told_to_stop_when_it_listens(tmp_path: Path) -> None:
    ended, taken_s = stopped_early(tmp_path, 2)
    assert (ended.ending, ended.exit_codes) == ("left", (LEFT, LEFT))
    assert {path.name for path in tmp_path.glob("told*")} == {"told0", "told1"}
    assert taken_s > 1.0, "it did not wait for the second"


def test_a_job_of_one_process_is_told_to_stop_at_once(tmp_path: Path) -> None:
    ended, _ = stopped_early(tmp_path, 1)
    assert ended.ending == "left"
    assert ended.exit_codes in ((-signal.SIGTERM,), (LEFT,))


@pytest.mark.parametrize(("total", "ending"), [(None, "left"), (9, "left"), (3, "finished")])
def test_who_leaves_without_a_fault_when_told_to_is_done_only_if_its_steps_say_so(
    tmp_path: Path, total: int | None, ending: str
) -> None:
    code = "trap 'exit 0' TERM; echo step 3; touch ready; while :; do sleep 0.05; done"
    told: dict[str, Any] = {"total_steps": total, "progress_pattern": r"step (\d+)"}
    ended, _ = kept(tmp_path, "bash", "-c", code, stop="ready", **told)
    assert (ended.ending, ended.steps, ended.exit_codes) == (ending, 3.0, (0,))


def test_who_leaves_without_a_fault_when_its_time_is_over_has_failed(tmp_path: Path) -> None:
    code = "trap 'exit 0' TERM; while :; do sleep 0.05; done"
    ended, _ = kept(tmp_path, "bash", "-c", code, time_limit_s=0.5)
    assert (ended.ending, ended.message) == ("failed", "time limit of 0.5 s")


def test_lines_that_tell_no_number_of_steps_are_passed_over(tmp_path: Path) -> None:
    said = "step 7\nstep 1,000\nstep nan\nstep inf\nstep -1\nstep many\nstep\n"
    pattern = r"step ?([-,\w]+)?"
    ended, _ = kept(tmp_path, "printf", said, progress_pattern=pattern)
    assert (ended.ending, ended.steps) == ("finished", 7.0)


def test_a_bar_that_begins_its_line_anew_tells_steps_too(tmp_path: Path) -> None:
    ended, _ = kept(tmp_path, "printf", r"\rstep 3\rstep 10", progress_pattern=r"step (\d+)")
    assert ended.steps == 10.0


def test_what_no_process_can_be_given_fails_the_job(tmp_path: Path) -> None:
    ended, _ = kept(tmp_path, "echo", "a\0b")
    assert ended.ending == "failed"
    assert ended.message.startswith("it did not start: ")


def test_nothing_runs_if_its_output_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "logs" / "1.1.log").mkdir(parents=True)  # the second member's
    ended, _ = kept(tmp_path, "bash", "-c", "sleep 60 & wait", devices=2)
    assert ended.ending == "failed"
    assert "1.1.log" in ended.message
    assert not of_lease(tmp_path)


def test_nothing_that_a_job_has_started_outlives_it(tmp_path: Path) -> None:
    code = "setsid sleep 60 & until [ -e ready ]; do sleep 0.05; done"
    (tmp_path / "ready").touch()
    ended, _ = kept(tmp_path, "bash", "-c", code)
    assert ended.ending == "finished"
    assert not of_lease(tmp_path)


def test_a_memory_limit_counts_all_processes_and_what_they_share_once(tmp_path: Path) -> None:
    hold = f"{sys.executable} -c \"import os, time; x = b'x' * (120 << 20); {{}}time.sleep({{}})\""
    alone = hold.format("", 60) + "; true"
    ended, _ = kept(tmp_path, "bash", "-c", alone, memory_gib=0.1)
    assert ended.ending == "failed"
    assert ended.message.startswith("memory limit: 0.1")
    (tmp_path / "shared").mkdir()
    shared = hold.format("os.fork(); os.fork(); ", 3) + "; true"
    ended, _ = kept(tmp_path / "shared", "bash", "-c", shared, memory_gib=0.3)
    assert ended.ending == "finished"


def test_a_pattern_that_takes_for_ever_holds_nobody_up(tmp_path: Path) -> None:
    code = "echo step 5; sleep 0.5; echo " + "a" * 60 + "; touch ready; sleep 60"
    pattern = r"(?:(?:a+)+b|step )(\d+)"
    ended, taken_s = kept(tmp_path, "bash", "-c", code, stop="ready", progress_pattern=pattern)
    assert (ended.ending, ended.steps) == ("left", 5.0)
    assert taken_s < 10.0


HELPED = """
import multiprocessing, signal, sys, time

def help_it(pipe):
    while True: pipe.send(pipe.recv())

if __name__ == "__main__":
    mine, other = multiprocessing.Pipe()
    helper = multiprocessing.Process(target=help_it, args=(other,), daemon=True)
    helper.start()
    other.close()
    def leave(*_):
        time.sleep(0.5)
        mine.send("state")
        open("saved", "w").write(mine.recv())
        sys.exit(0)
    signal.signal(signal.SIGTERM, leave)
    open("ready", "w").close()
    while True: time.sleep(0.05)
"""


def test_helpers_of_a_job_in_a_shell_outlive_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "helped.py").write_text(HELPED)
    command = f"{sys.executable} helped.py; true"
    ended, _ = kept(tmp_path, "bash", "-c", command, stop="ready")
    assert ended.ending == "left"
    assert (tmp_path / "saved").read_text() == "state"
    assert not of_lease(tmp_path)
