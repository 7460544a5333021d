"""A simulated disk over a real directory: it is slow, full, or cut off in the middle."""

import errno
import fcntl
import os
import random
from collections.abc import Callable
from typing import Any

from fairlead.testing.faults_machine import Machine, Process


class Disk:
    """Stands in for ``os``, ``open`` and ``fcntl`` in modules that write files.

    A file that was not flushed to the disk loses its content when the power goes.
    """

    def __init__(self, machine: Machine, rng: random.Random) -> None:
        self._machine = machine
        self._rng = rng
        self.full = False
        self.slow = 0.0
        """how likely it is that an operation takes a while"""
        self.on_server: Callable[[], None] = lambda: None
        """called before the server changes a file; it may die there"""
        self.on_replace: Callable[[str], None] = lambda _: None
        self.on_full: Callable[[Process], None] = lambda _: None
        self._dirty: set[int] = set()
        self._paths: dict[int, str] = {}
        self.path = os.path

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def getpid(self) -> int:
        """Return the number of the simulated process."""
        me = self._machine.me
        return 1 if me is None else me.pid

    def open_file(self, path: str, mode: str = "r", **options: Any) -> Any:
        """Open a file as ``open`` does; there may be no room for a new one."""
        if "w" in mode:
            self._turn()
            self._require_room()
        file = open(path, mode, **options)  # noqa: SIM115  # the caller closes it
        if "w" in mode:
            inode = os.fstat(file.fileno()).st_ino
            self._dirty.add(inode)
            self._paths[inode] = path
        return file

    def fsync(self, descriptor: int) -> None:
        """Flush a file to the disk."""
        self._turn()
        self._require_room()
        self._dirty.discard(os.fstat(descriptor).st_ino)

    def replace(self, old: str, new: str) -> None:
        """Rename a file."""
        self._turn()
        os.replace(old, new)
        inode = os.stat(new).st_ino
        if inode in self._paths:
            self._paths[inode] = new
        self.on_replace(str(new))
        self._turn()

    def lose_power(self) -> None:
        """Empty every file that was not flushed."""
        for inode in self._dirty:
            path = self._paths[inode]
            if os.path.exists(path) and os.stat(path).st_ino == inode:
                os.truncate(path, 0)
        self._dirty.clear()

    # -- fcntl ----------------------------------------------------------------------------------

    LOCK_EX, LOCK_NB = fcntl.LOCK_EX, fcntl.LOCK_NB

    def flock(self, file: Any, how: int) -> None:
        """Lock a file; waiting lets others run."""
        while True:
            try:
                fcntl.flock(file, how | fcntl.LOCK_NB)
            except BlockingIOError:
                if how & fcntl.LOCK_NB or self._machine.me is None:
                    raise
                self._machine.fibres.sleep(0.01)
            else:
                return

    def _turn(self) -> None:
        """Let the others have a turn, sometimes."""
        if self._machine.me is None:
            self.on_server()
        elif self.slow and self._rng.random() < self.slow:
            self._machine.fibres.sleep(self._rng.choice((0.0, 0.01, 0.1)))

    def _require_room(self) -> None:
        if self.full:
            if self._machine.me is not None:
                self.on_full(self._machine.me)
            raise OSError(errno.ENOSPC, "no space left on the simulated disk")
