"""Throw-away Unix users, for tests of tenants that run as different users."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import fairlead
from fairlead.engines.shared.checkup.tenant_access import check_installation

_TIMEOUT_S = 30.0


def missing() -> str:
    """Return the reason why no user can be made here, or an empty string."""
    if os.geteuid() != 0:
        return "Unix users need root"
    absent = [name for name in ("useradd", "userdel") if shutil.which(name) is None]
    return f"Unix users need {', '.join(absent)}" if absent else ""


def importable_package(folder: Path) -> Path:
    """Return a directory from which every user can import Fairlead, a copy if necessary.

    A checkout in a private directory, such as root's home, is closed to other users.
    """
    package = Path(fairlead.__file__).parent
    if not list(check_installation(package)):
        return package.parent
    without_caches = shutil.ignore_patterns("__pycache__")
    copy = shutil.copytree(package, folder / "copy/fairlead", ignore=without_caches)
    subprocess.run(["chmod", "-R", "a+rX", copy.parent], check=True)
    return copy.parent


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
