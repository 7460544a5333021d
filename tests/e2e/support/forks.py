"""Runs ``fairlead`` in forks of processes that have imported what it needs.

A command or server still has its own process, environment and output; only the start of the
interpreter and the imports are saved, most of the time of a short command.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

_FORK_SERVER = Path(__file__).with_name("fork_server.py")
_READ_AT_START = ("PYTHON", "FAIRLEAD_CRASHES")
"""variables that an interpreter and ``fairlead`` read once, at their start"""


class ForkedProcess:
    """A process that ``fork_server.py`` has forked; used as a ``subprocess.Popen``."""

    def __init__(self, answers: socket.socket) -> None:
        self._answers = answers
        self.pid = int(answers.recv(16))
        self.returncode: int | None = None
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            self._read_code()

    def poll(self) -> int | None:
        """Return the exit status, None while the process runs."""
        if self.returncode is None and select.select([self._pidfd], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; raise TimeoutExpired if it takes too long."""
        if self.returncode is None:
            if not select.select([self._pidfd], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal unless the process has ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._pidfd, number)

    def terminate(self) -> None:
        """Ask the process to end."""
        self.send_signal(signal.SIGTERM)

    def _end(self) -> None:
        os.close(self._pidfd)
        self._read_code()

    def _read_code(self) -> None:
        code = b""
        with contextlib.suppress(BlockingIOError):  # a process that is killed sends nothing
            code = self._answers.recv(16, socket.MSG_DONTWAIT)
        self.returncode = int(code) if code else -signal.SIGKILL
        self._answers.close()


class Forks:
    """Starts ``fairlead`` in forks of one process, which ends with this one."""

    def __init__(self, *modules: str) -> None:
        self._at_start = _read_at_start(os.environ)
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        descriptor = theirs.fileno()
        command = [sys.executable, str(_FORK_SERVER), str(descriptor), *modules]
        # A process with threads cannot be forked safely.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        with theirs:
            self._process = subprocess.Popen(command, pass_fds=[descriptor], env=environment)

    def fits(self, environment: Mapping[str, str]) -> bool:
        """Return whether a fork behaves in this environment as a new interpreter."""
        return _read_at_start(environment) == self._at_start

    def start(
        self,
        arguments: Iterable[str],
        environment: Mapping[str, str],
        out: int,
        err: int,
        directory: Path | None = None,
    ) -> ForkedProcess:
        """Start a command in a directory; None: the current one."""
        where = str(directory or Path.cwd())
        request = json.dumps([["fairlead", *arguments], dict(environment), where]).encode()
        answers, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self._requests, [request], [out, err, theirs.fileno()])
        return ForkedProcess(answers)


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_AT_START)}


@cache
def forked_servers() -> Forks:
    """Return the process whose forks are servers."""
    return Forks("fairlead.server.serve", "fairlead.engines.local.plugin", "alembic.command")


@cache
def _forked_commands() -> Forks:
    return Forks("fairlead.client", "rich.live", "rich.progress", "rich.table")


def run_command(
    arguments: Iterable[object],
    environment: Mapping[str, str],
    timeout_s: float = 180.0,
    directory: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command of a client to its end, as ``subprocess.run`` does."""
    words, forks = [*map(str, arguments)], _forked_commands()
    if not forks.fits(environment):
        return subprocess.run(
            [sys.executable, "-m", "fairlead", *words],
            capture_output=True,
            text=True,
            env=environment,
            cwd=directory,
            timeout=timeout_s,
            check=False,
        )
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = forks.start(words, environment, out.fileno(), err.fileno(), directory)
        code = started.wait(timeout_s)
        printed = []
        for file in (out, err):
            file.seek(0)
            printed.append(file.read().decode())
    return subprocess.CompletedProcess(words, code, *printed)
