"""Isolated node on one machine: separate network and mount namespaces that can be disconnected.

Two network namespaces, *here* and *there*, are joined by a virtual cable; the far one also has a
separate view of the mounts. Addresses exist inside these namespaces only; the machine's network
is untouched. The namespaces disappear with the processes that hold them.
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
_TIMEOUT_S = 10.0
_HOLD = "import sys; print(flush=True); sys.stdin.read()"
"""program that holds namespaces: prints a line when ready, then waits"""


def missing() -> str:
    """Return the reason why namespaces cannot be made here, or an empty string."""
    absent = [name for name in _PROGRAMS if _path(name) is None]
    if absent:
        return f"namespaces need {', '.join(absent)}"
    return "" if os.geteuid() == 0 else "namespaces need root"


@dataclass(frozen=True)
class IsolatedNode:
    """The two namespaces, identified by the processes that hold them."""

    here: int
    there: int

    @property
    def enter(self) -> tuple[str, ...]:
        """Prefix for commands that run on the far side."""
        return (str(_path("nsenter")), f"--target={self.there}", "--net", "--mount", "--")

    def cut(self, *directories: Path) -> None:
        """Disconnect the far side: no network, and these directories appear empty.

        Open files stay open, as on a network file system until its timeout.
        """
        for path in directories:
            self._run("mount", "-t", "tmpfs", "-o", "ro,size=4k", "none", str(path))
        self._run("ip", "link", "set", "cable", "down")

    def restore_directories(self, *directories: Path) -> None:
        """Show these directories to the far side again."""
        for path in directories:
            self._run("umount", str(path))

    def restore_network(self) -> None:
        """Reconnect the cable."""
        self._run("ip", "link", "set", "cable", "up")

    def _run(self, *command: str) -> None:
        _do(*self.enter, *command)


@contextmanager
def isolated_node(*more: str) -> Iterator[IsolatedNode]:
    """Make the namespaces and move this thread and its children to the near one.

    The near side gets ``more`` addresses, for daemons that need separate ones.
    """
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    with _held("--net") as here, _held("--net", "--mount", "--propagation=private") as there:
        near = os.open(f"/proc/{here}/ns/net", os.O_RDONLY)
        try:
            _move_to(near)
            node = IsolatedNode(here, there)
            _do("ip", "link", "set", "lo", "up")
            _do(*f"ip link add cable type veth peer name cable netns {there}".split())
            for address in (HERE, *more):
                _do("ip", "address", "add", f"{address}/24", "dev", "cable")
            _do("ip", "link", "set", "cable", "up")
            _do(*node.enter, "ip", "link", "set", "lo", "up")
            _do(*node.enter, "ip", "address", "add", f"{THERE}/24", "dev", "cable")
            node.restore_network()
            yield node
        finally:
            _move_to(home)
            os.close(near)
            os.close(home)


@contextmanager
def _held(*namespaces: str) -> Iterator[int]:
    """Hold new namespaces until this process ends."""
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
        raise OSError(ctypes.get_errno(), "cannot change the network namespace of this thread")


def _do(*command: str) -> None:
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{_SBIN}"}
    subprocess.run(command, check=True, timeout=_TIMEOUT_S, env=environment)


def _path(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{_SBIN}")
