"""Throw-away Unix users, for tests of tenants that run as different users."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_TIMEOUT_S = 30.0


def missing() -> str:
    """Return the reason why no user can be made here, or an empty string."""
    if os.geteuid() != 0:
        return "Unix users need root"
    absent = [name for name in ("useradd", "userdel") if shutil.which(name) is None]
    return f"Unix users need {', '.join(absent)}" if absent else ""


@contextmanager
def throw_away_users(names: Sequence[str]) -> Iterator[None]:
    """Make users without home directories; afterwards end their processes and remove them."""
    made: list[str] = []
    try:
        for name in names:
            _run("useradd", "--no-create-home", "--shell", "/bin/sh", name)
            made.append(name)
        yield
    finally:
        for name in made:
            _kill_all(name)
            _run("userdel", name)


def _run(*command: str) -> None:
    """Run a command that changes the password file; another test may hold its lock."""
    until = time.monotonic() + _TIMEOUT_S
    while True:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        assert time.monotonic() < until, done.stderr
        time.sleep(0.2)


def _kill_all(name: str) -> None:
    user = shutil.which("id")
    assert user is not None
    uid = int(subprocess.run([user, "-u", name], capture_output=True, check=True).stdout)
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if entry.stat().st_uid == uid:
                os.kill(int(entry.name), signal.SIGKILL)
