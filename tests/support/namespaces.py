"""A node that can be cut off: network and mount namespaces of our own, on one machine.

Two network namespaces are joined by a cable, *here* and *there*; the far one has its own view of
the mounts, too. Addresses exist inside these namespaces only. Nothing of the machine's own network
is touched, and with the processes that hold them the namespaces are gone.
"""

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE, THERE = "10.77.0.1", "10.77.0.2"
_PROGRAMS = ("ip", "mount", "nsenter", "umount", "unshare")
_SBIN = "/usr/sbin:/sbin"
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_LIBC = ctypes.CDLL(None, use_errno=True)
_PATIENCE_S = 10.0
_HOLD = "import sys; print(flush=True); sys.stdin.read()"
"""what a process does that holds namespaces: it says that it is there, and waits for its end"""


def missing() -> str:
    """Return why no namespaces can be made here, empty when they can."""
    absent = [name for name in _PROGRAMS if _path(name) is None]
    if absent:
        return f"namespaces need {', '.join(absent)}"
    return "" if os.geteuid() == 0 else "namespaces need root"


@dataclass(frozen=True)
class Apart:
    """The two namespaces, by the processes that hold them."""

    here: int
    there: int

    @property
    def enter(self) -> tuple[str, ...]:
        """What to put before a command that is to run there."""
        return (str(_path("nsenter")), f"--target={self.there}", "--net", "--mount", "--")

    def cut(self, *directories: Path) -> None:
        """Cut the far side off: its network is gone, and it finds nothing in these directories.

        Files that it has open stay open, as on a network file system until it gives up.
        """
        for path in directories:
            self._run("mount", "-t", "tmpfs", "-o", "ro,size=4k", "none", str(path))
        self._run("ip", "link", "set", "cable", "down")

    def restore_directories(self, *directories: Path) -> None:
        """Let the far side see these directories again."""
        for path in directories:
            self._run("umount", str(path))

    def restore_network(self) -> None:
        """Plug the cable in again."""
        self._run("ip", "link", "set", "cable", "up")

    def _run(self, *command: str) -> None:
        _do(*self.enter, *command)


@contextmanager
def apart(*more: str) -> Iterator[Apart]:
    """Make the namespaces; meanwhile this thread, and what it starts, is in the near one.

    The near side has ``more`` addresses besides its own, for daemons that want one each.
    """
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    with _held("--net") as here, _held("--net", "--mount", "--propagation=private") as there:
        near = os.open(f"/proc/{here}/ns/net", os.O_RDONLY)
        try:
            _move_to(near)
            made = Apart(here, there)
            _do("ip", "link", "set", "lo", "up")
            _do(*f"ip link add cable type veth peer name cable netns {there}".split())
            for address in (HERE, *more):
                _do("ip", "address", "add", f"{address}/24", "dev", "cable")
            _do("ip", "link", "set", "cable", "up")
            _do(*made.enter, "ip", "link", "set", "lo", "up")
            _do(*made.enter, "ip", "address", "add", f"{THERE}/24", "dev", "cable")
            made.restore_network()
            yield made
        finally:
            _move_to(home)
            os.close(near)
            os.close(home)


@contextmanager
def _held(*namespaces: str) -> Iterator[int]:
    """Hold new namespaces; they are gone when this process is, however it ends."""
    command = [str(_path("unshare")), *namespaces, sys.executable, "-c", _HOLD]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        try:
            yield holder.pid
        finally:
            holder.kill()


def _move_to(namespace: int) -> None:
    if _LIBC.setns(namespace, _NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "this thread cannot change its network namespace")


def _do(*command: str) -> None:
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{_SBIN}"}
    subprocess.run(command, check=True, timeout=_PATIENCE_S, env=environment)


def _path(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{_SBIN}")
