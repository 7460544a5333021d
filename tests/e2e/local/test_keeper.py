"""The keeper of a gang: stop signals, outcomes, output and limits."""

import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fairlead.engines.base import Ended, LaunchOrder
from fairlead.engines.keeper import lease_dir
from fairlead.job.exit_status import EXIT_PREEMPTED

# Rank 1 installs its handler after the stop signal; both record that they received it.
MEMBER = f"""
import os, signal, sys, time
rank = os.environ["RANK"]
if rank == "1":
    while not os.path.exists(sys.argv[2]): time.sleep(0.05)
    time.sleep(0.5)
def leave(*_):
    open(sys.argv[1] + rank, "w").close()
    sys.exit({EXIT_PREEMPTED})
signal.signal(signal.SIGTERM, leave)
time.sleep(60)
"""


def run(
    root: Path, *command: str, devices: int = 1, stop: str = "", **settings: Any
) -> tuple[Ended, float]:
    """Run a gang to its end; return that, and the seconds since the stop signal.

    The signal is sent as soon as the file ``stop`` exists, if it is named; then the file
    ``stopped`` exists.
    """
    (root / "lease").mkdir()
    order = LaunchOrder(
        lease=1,
        job="j1",
        command=command,
        directory=str(root),
        devices=tuple(("here", number) for number in range(devices)),
        accelerators=("v100",) * devices,
        checkpoint_dir=str(root / "checkpoint"),
        log_dir=str(root / "logs"),
        **settings,
    )
    lease_dir.write_order(root / "lease", order)
    keeper_command = [sys.executable, "-m", "fairlead.engines.keeper.keeper", str(root / "lease")]
    with subprocess.Popen(keeper_command) as keeper:
        until = time.monotonic() + 90.0
        while stop and not (root / stop).exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        began = time.monotonic()
        if stop:
            keeper.send_signal(signal.SIGTERM)
            (root / "stopped").touch()
        keeper.wait(90.0)
    ended = lease_dir.read_ended(root / "lease", 1)
    assert ended is not None
    return ended, time.monotonic() - began


def lease_processes(root: Path) -> list[Path]:
    """Return the processes with the environment of the lease's members."""
    mark, processes = f"FAIRLEAD_CHECKPOINT_DIR={root / 'checkpoint'}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                processes.append(path)
    return processes


def stopped_early(root: Path, devices: int) -> Ended:
    """Run a gang that is stopped as soon as it runs; return its end."""
    (root / "member.py").write_text(MEMBER)
    command = sys.executable, str(root / "member.py"), str(root / "signalled")
    ended, _ = run(
        root, *command, str(root / "stopped"), devices=devices, stop="lease/members.json"
    )
    return ended


def test_a_loading_member_gets_the_stop_signal_once_it_has_a_handler(tmp_path: Path) -> None:
    ended = stopped_early(tmp_path, 2)
    assert (ended.ending, ended.exit_codes) == ("left", (EXIT_PREEMPTED, EXIT_PREEMPTED))
    assert {path.name for path in tmp_path.glob("signalled*")} == {"signalled0", "signalled1"}


def test_a_job_of_one_process_gets_the_stop_signal_at_once(tmp_path: Path) -> None:
    ended = stopped_early(tmp_path, 1)
    assert ended.ending == "left"
    assert ended.exit_codes in ((-signal.SIGTERM,), (EXIT_PREEMPTED,))


@pytest.mark.parametrize(("total", "ending"), [(None, "left"), (9, "left"), (3, "finished")])
def test_a_stopped_job_that_exits_with_0_has_finished_only_after_all_its_steps(
    tmp_path: Path, total: int | None, ending: str
) -> None:
    code = "trap 'exit 0' TERM; echo step 3; touch ready; while :; do sleep 0.05; done"
    settings: dict[str, Any] = {"total_steps": total, "progress_pattern": r"step (\d+)"}
    ended, _ = run(tmp_path, "bash", "-c", code, stop="ready", **settings)
    assert (ended.ending, ended.steps, ended.exit_codes) == (ending, 3.0, (0,))


def test_a_job_that_exits_with_0_after_its_time_limit_has_failed(tmp_path: Path) -> None:
    code = "trap 'exit 0' TERM; while :; do sleep 0.05; done"
    ended, _ = run(tmp_path, "bash", "-c", code, time_limit_s=0.5)
    assert (ended.ending, ended.message) == ("failed", "time limit of 0.5 s")


def test_lines_without_a_number_of_steps_are_skipped(tmp_path: Path) -> None:
    output = "step 7\nstep 1,000\nstep nan\nstep inf\nstep -1\nstep many\nstep\n"
    pattern = r"step ?([-,\w]+)?"
    ended, _ = run(tmp_path, "printf", output, progress_pattern=pattern)
    assert (ended.ending, ended.steps) == ("finished", 7.0)


def test_steps_are_read_from_a_progress_bar(tmp_path: Path) -> None:
    ended, _ = run(tmp_path, "printf", r"\rstep 3\rstep 10", progress_pattern=r"step (\d+)")
    assert ended.steps == 10.0


def test_an_argument_that_no_process_accepts_fails_the_job(tmp_path: Path) -> None:
    ended, _ = run(tmp_path, "echo", "a\0b")
    assert ended.ending == "failed"
    assert ended.message.startswith("did not start: ")


def test_no_member_runs_if_a_log_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "logs" / "1.1.log").mkdir(parents=True)  # the second member's
    ended, _ = run(tmp_path, "bash", "-c", "sleep 60 & wait", devices=2)
    assert ended.ending == "failed"
    assert "1.1.log" in ended.message
    assert not lease_processes(tmp_path)


def test_a_jobs_descendants_do_not_outlive_it(tmp_path: Path) -> None:
    code = "setsid sleep 60 & until [ -e ready ]; do sleep 0.05; done"
    (tmp_path / "ready").touch()
    ended, _ = run(tmp_path, "bash", "-c", code)
    assert ended.ending == "finished"
    assert not lease_processes(tmp_path)


def test_a_memory_limit_counts_all_processes_and_shared_memory_once(tmp_path: Path) -> None:
    hold = f"{sys.executable} -c \"import os, time; x = b'x' * (120 << 20); {{}}time.sleep({{}})\""
    alone = hold.format("", 60) + "; true"
    ended, _ = run(tmp_path, "bash", "-c", alone, memory_gib=0.1)
    assert ended.ending == "failed"
    assert ended.message.startswith("memory limit: 0.1")
    (tmp_path / "shared").mkdir()
    shared = hold.format("os.fork(); os.fork(); ", 3) + "; true"
    ended, _ = run(tmp_path / "shared", "bash", "-c", shared, memory_gib=0.3)
    assert ended.ending == "finished"


def test_a_slow_progress_pattern_does_not_delay_the_keeper(tmp_path: Path) -> None:
    code = "echo step 5; sleep 0.5; echo " + "a" * 60 + "; touch ready; sleep 60"
    pattern = r"(?:(?:a+)+b|step )(\d+)"
    ended, taken_s = run(tmp_path, "bash", "-c", code, stop="ready", progress_pattern=pattern)
    assert (ended.ending, ended.steps) == ("left", 5.0)
    assert taken_s < 45.0  # the search itself would not end


WITH_WORKER = """
import multiprocessing, signal, sys, time

def echo(pipe):
    while True: pipe.send(pipe.recv())

if __name__ == "__main__":
    near, far = multiprocessing.Pipe()
    worker = multiprocessing.Process(target=echo, args=(far,), daemon=True)
    worker.start()
    far.close()
    def leave(*_):
        time.sleep(0.5)
        near.send("state")
        open("saved", "w").write(near.recv())
        sys.exit(0)
    signal.signal(signal.SIGTERM, leave)
    open("ready", "w").close()
    while True: time.sleep(0.05)
"""


def test_workers_of_a_job_in_a_shell_live_until_it_has_saved(tmp_path: Path) -> None:
    (tmp_path / "with_worker.py").write_text(WITH_WORKER)
    command = f"{sys.executable} with_worker.py; true"
    ended, _ = run(tmp_path, "bash", "-c", command, stop="ready")
    assert ended.ending == "left"
    assert (tmp_path / "saved").read_text() == "state"
    assert not lease_processes(tmp_path)
