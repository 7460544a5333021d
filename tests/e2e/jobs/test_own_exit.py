"""Programs that exit by themselves while their lease is stopped."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.local.test_keeper import run
from tests.e2e.support.lease_server import LeaseServer

from fairlead.engines.base import Ended
from fairlead.job.exit_status import EXIT_PREEMPTED

BEGIN = """
import os, signal, sys, time
from itertools import count
from fairlead import job

def stop_comes():
    open("in_loop" + os.environ["RANK"], "w").close()
    while not os.path.exists("stopped"): time.sleep(0.01)

run = job.attach()
"""
BREAKS = """
for i in run.steps(count()):
    if i == 5:
        stop_comes()
        break
"""
EXHAUSTED = """
for i in run.steps(range(6)):
    if i == 5: stop_comes()
"""
BREAKS_EPOCHS = """
for epoch in run.epochs(10):
    for i in run.steps(range(3)): pass
    if epoch == 1:
        stop_comes()
        break
"""
BREAKS_KEPT_ITERATOR = """
batches = run.steps(count())
for i in batches:
    if i == 5:
        stop_comes()
        if os.fork() == 0: sys.exit()
        os.wait()
        break
"""
ENDS_SLOWLY = """
class Last:  # when it ends, the interpreter has removed most of the program's names
    def __del__(self, os=os, exists=os.path.exists, sleep=time.sleep):
        os.close(os.open("in_loop0", os.O_CREAT | os.O_WRONLY))
        while not exists("stopped"): sleep(0.01)
        sleep(0.5)  # in which the signal comes

last = Last()
for i in run.steps(range(5)): pass
"""
RAISES = """
def train():
    for i in run.steps(count()):
        if i == 5:
            stop_comes()
            sys.exit()
train()
"""
HANDLES_IN_LOOP = """
# As PyTorch Lightning does: a handler for the time of the loop, which calls the one before.
before, received = signal.getsignal(signal.SIGTERM), []
signal.signal(signal.SIGTERM, lambda *stop: (received.append(stop), before(*stop)))
try:
    for i in run.steps(count()):
        if i == 5: stop_comes()
        while i == 5 and not received: time.sleep(0.01)
        if received: raise SystemExit
finally:
    signal.signal(signal.SIGTERM, before)
"""
BREAKS_BEFORE = """
def steps_until(last):
    for i in run.steps(count()):
        if i == last: break
steps_until(5)
stop_comes()
"""


@pytest.fixture
def server() -> Iterator[LeaseServer]:
    made = LeaseServer()
    made.leave_from[1] = 5
    yield made
    made.close()


def train(
    root: Path, server: LeaseServer, program: str, devices: int = 1, grace_s: float = 30.0
) -> Ended:
    """Run a program under a lease that is stopped in its loop; return the lease's end."""
    (root / "train.py").write_text(BEGIN + program)
    server.world_size = devices
    variables = {"FAIRLEAD_URL": server.url, "FAIRLEAD_JOB_TOKEN": "secret"}
    command = sys.executable, "train.py"
    ended, _ = run(
        root,
        *command,
        devices=devices,
        stop=f"in_loop{devices - 1}",
        environment=variables,
        grace_s=grace_s,
    )
    return ended


@pytest.mark.parametrize(
    ("program", "steps"),
    [
        (BREAKS, 5),
        (BREAKS_KEPT_ITERATOR, 5),
        (EXHAUSTED, 6),
        (BREAKS_EPOCHS, 6),
        (RAISES, 5),
        (BREAKS_BEFORE, 5),
        (ENDS_SLOWLY, 5),
    ],
    ids=["break", "fork", "no items", "break of epochs", "sys.exit", "before", "at its end"],
)
def test_a_program_that_exits_with_0_by_itself_is_done(
    tmp_path: Path, server: LeaseServer, program: str, steps: float
) -> None:
    ended = train(tmp_path, server, program)
    assert (ended.ending, ended.steps, ended.exit_codes) == ("finished", steps, (0,))


@pytest.mark.parametrize(
    ("program", "ending", "code"),
    [
        (BREAKS.replace("break", "continue"), "left", EXIT_PREEMPTED),
        (f"signal.signal(signal.SIGTERM, lambda *_: None)\n{BREAKS}", "left", 0),
        (HANDLES_IN_LOOP, "left", 0),
        (f"{BREAKS}\nsys.exit(3)", "failed", 3),
    ],
    ids=["continues", "handles the stop", "handles it in the loop", "fails"],
)
def test_a_program_that_may_have_left_because_of_the_stop_is_not_done(
    tmp_path: Path, server: LeaseServer, program: str, ending: str, code: int
) -> None:
    ended = train(tmp_path, server, program)
    assert (ended.ending, ended.exit_codes) == (ending, (code,))


def test_a_gang_is_done_once_all_its_members_have_exited_by_themselves(
    tmp_path: Path, server: LeaseServer
) -> None:
    ended = train(tmp_path, server, BREAKS, devices=2)
    assert (ended.ending, ended.steps, ended.exit_codes) == ("finished", 5.0, (0, 0))


def test_a_gang_of_which_one_member_exits_by_itself_is_not_done(
    tmp_path: Path, server: LeaseServer
) -> None:
    program = BREAKS.replace("break", "if run.rank == 1: break")
    # Rank 0 waits for the other's part of its checkpoint until it is killed.
    ended = train(tmp_path, server, program, devices=2, grace_s=2.0)
    assert ended.ending == "left"
    assert ended.exit_codes[0] != 0


def test_a_line_of_another_process_does_not_tell_that_a_program_is_done(
    tmp_path: Path, server: LeaseServer
) -> None:
    (tmp_path / "train.py").write_text(BEGIN + "for i in run.steps(range(2)): pass")
    then = "trap 'exit 0' TERM; touch ready; while :; do sleep 0.05; done"
    variables = {"FAIRLEAD_URL": server.url, "FAIRLEAD_JOB_TOKEN": "secret"}
    shell = f"{sys.executable} train.py; {then}"
    ended, _ = run(tmp_path, "bash", "-c", shell, stop="ready", environment=variables)
    assert (ended.ending, ended.steps, ended.exit_codes) == ("left", 2.0, (0,))
