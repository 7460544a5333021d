"""Simulated disk over a real directory: slow, full, or without power."""

import errno
import fcntl
import os
import random
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.machine.machine import Machine, Process


class Disk:
    """Replaces ``os``, ``open`` and ``fcntl`` in modules that write files.

    A power failure loses file contents and renames that were not flushed.
    """

    def __init__(self, machine: Machine, rng: random.Random) -> None:
        self._machine = machine
        self._rng = rng
        self.full = False
        self.slow = 0.0
        """probability that an operation is slow"""
        self.on_server: Callable[[], None] = lambda: None
        """called before the server changes a file; may kill the server"""
        self.on_replace: Callable[[str], None] = lambda _: None
        self.on_write: Callable[[str], None] = lambda _: None
        """called after a file was opened for writing"""
        self.on_full: Callable[[Process], None] = lambda _: None
        self._flushed: dict[int, int] = {}
        """inode → bytes that survive a power failure"""
        self._paths: dict[int, str] = {}
        self._renamed: dict[str, list[tuple[str, bytes | None]]] = {}
        """directory → files replaced since its last flush, with their previous contents"""
        self.path = os.path

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def getpid(self) -> int:
        """Return the pid of the simulated process."""
        me = self._machine.me
        return 1 if me is None else me.pid

    def open_file(self, path: str, mode: str = "r", **options: Any) -> Any:
        """Open a file as ``open`` does; raise OSError for writes to a full disk."""
        if "w" in mode:
            self._yield()
            self._require_room()
        file = open(path, mode, **options)  # noqa: SIM115  # the caller closes it
        if "w" in mode:
            inode = os.fstat(file.fileno()).st_ino
            self._flushed[inode] = 0
            self._paths[inode] = path
            self.on_write(path)
        return file

    def fsync(self, descriptor: int) -> None:
        """Flush a file or directory to the disk."""
        self._yield()
        self._require_room()
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            self._renamed.pop(os.readlink(f"/proc/self/fd/{descriptor}"), None)
        elif status.st_ino in self._flushed:
            self._flushed[status.st_ino] = status.st_size

    def replace(self, old: str, new: str) -> None:
        """Rename a file."""
        self._yield()
        directory = os.path.realpath(os.path.dirname(new))
        before = Path(new).read_bytes() if os.path.exists(new) else None
        self._renamed.setdefault(directory, []).append((new, before))
        os.replace(old, new)
        inode = os.stat(new).st_ino
        if inode in self._paths:
            self._paths[inode] = new
        self.on_replace(str(new))
        self._yield()

    def lose_power(self) -> list[str]:
        """Undo unflushed renames and truncate unflushed files; return the paths of the renames."""
        for inode, size in self._flushed.items():
            path = self._paths[inode]
            if os.path.exists(path) and os.stat(path).st_ino == inode:
                os.truncate(path, min(size, os.stat(path).st_size))
        self._flushed.clear()
        for renamed in self._renamed.values():
            for path, before in reversed(renamed):
                if not os.path.isdir(os.path.dirname(path)):
                    continue  # removed since
                if before is None:
                    if os.path.exists(path):
                        os.unlink(path)
                else:
                    with open(path, "wb") as file:
                        file.write(before)
        undone = [path for renamed in self._renamed.values() for path, _ in renamed]
        self._renamed.clear()
        return undone

    # -- fcntl ----------------------------------------------------------------------------------

    LOCK_EX, LOCK_NB, LOCK_UN = fcntl.LOCK_EX, fcntl.LOCK_NB, fcntl.LOCK_UN

    def flock(self, file: Any, operation: int) -> None:
        """Lock a file; other threads run during the wait."""
        while True:
            try:
                fcntl.flock(file, operation | fcntl.LOCK_NB)
            except BlockingIOError:
                if operation & fcntl.LOCK_NB or self._machine.me is None:
                    raise
                self._machine.threads.sleep(0.01)
            else:
                return

    def _yield(self) -> None:
        """Pass the server's gate, or sometimes yield to other threads."""
        if self._machine.me is None:
            self.on_server()
        elif self.slow and self._rng.random() < self.slow:
            self._machine.threads.sleep(self._rng.choice((0.0, 0.01, 0.1)))

    def _require_room(self) -> None:
        if self.full:
            if self._machine.me is not None:
                self.on_full(self._machine.me)
            raise OSError(errno.ENOSPC, "no space left on the simulated disk")
