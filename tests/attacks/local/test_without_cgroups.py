"""Attacks on a keeper without control groups: it adopts its members' orphans and polls limits."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.hostile import order

from fairlead.engines.base import Ended
from fairlead.engines.keeper import lease_dir

KEEPER = """
import sys
from pathlib import Path
from fairlead.engines.keeper.keeper import Keeper, run_lease
Keeper.in_cgroup = False
run_lease(Path(sys.argv[1]))
"""
DAEMON = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sleep", ["sleep", sys.argv[1]], {})
    os._exit(0)
os.wait()
"""
BOMB = """
import os, time
for _ in range(12):
    if os.fork() == 0:
        os.setsid()
        time.sleep(60)
time.sleep(60)
"""
HOG = "x = b'x' * (200 << 20); import time; time.sleep(60)"


def run(root: Path, code: str, *arguments: str, **settings: Any) -> Ended:
    directory = root / "leases" / "5"
    command = (sys.executable, "-c", code, *arguments)
    lease_dir.write_order(directory, order(root, command=command, **settings))
    keeper = [sys.executable, "-c", KEEPER, str(directory)]
    subprocess.run(keeper, check=True, timeout=90.0)
    ended = lease_dir.read_ended(directory, 5)
    assert ended is not None
    return ended


def test_a_daemon_with_an_empty_environment_does_not_outlive_its_lease(tmp_path: Path) -> None:
    mark = f"600.{os.getpid()}3"
    assert run(tmp_path, DAEMON, mark).ending == "finished"
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            assert mark.encode() not in path.read_bytes().split(b"\0")[1:2]


@pytest.mark.parametrize(
    ("code", "settings", "message"),
    [
        (BOMB, {"max_processes": 8}, "process limit: 8 processes"),
        (HOG, {"memory_gib": 0.1, "grace_s": 1.0}, "memory limit: 0."),
    ],
)
def test_limits_are_polled(
    tmp_path: Path, code: str, settings: dict[str, Any], message: str
) -> None:
    ended = run(tmp_path, code, **settings)
    assert ended.ending == "failed"
    assert ended.message.startswith(message)
