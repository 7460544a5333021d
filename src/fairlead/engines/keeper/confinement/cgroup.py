"""Control groups: end all processes of a lease at once, limit their memory and their number.

A lease has one group in each hierarchy that helps: in cgroup v2, which can kill a whole group, and
in the hierarchies ``memory`` and ``pids`` of cgroup v1 where v2 lacks these controllers. Without
root, or where the hierarchies are read-only, a lease has no group. A process cannot leave its
group, unless it is root.
"""

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fairlead import untrusted_file

PARENT = "fairlead"
"""group that holds the groups of all leases"""
_RECORD = "cgroup.json"
"""file of a lease directory that names the lease's groups"""
_MAX_RECORD_BYTES = 1 << 16
_CONTROLLERS = ("memory", "pids")


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The groups of one lease, one directory in each hierarchy."""

    directories: tuple[Path, ...]

    def join(self) -> None:
        """Move the calling process into the groups."""
        for directory in self.directories:
            (directory / "cgroup.procs").write_text("0", encoding="ascii")

    def limit(self, memory_bytes: int | None, processes: int | None) -> None:
        """Set the limits that a hierarchy can enforce."""
        if memory_bytes is not None:
            self._write(("memory.max", "memory.limit_in_bytes"), str(memory_bytes))
            # Swap would let a job exceed its memory; these files lack where there is no swap.
            self._write(("memory.swap.max",), "0")
            self._write(("memory.memsw.limit_in_bytes",), str(memory_bytes))
            self._write(("memory.oom.group",), "1")
        if processes is not None:
            self._write(("pids.max",), str(processes))

    def has_run_out_of_memory(self) -> bool:
        """Return whether the kernel has killed a process at the memory limit."""
        return self._event(("memory.events", "memory.oom_control"), "oom_kill") > 0

    def has_run_out_of_processes(self) -> bool:
        """Return whether the kernel has refused a process at the limit."""
        return self._event(("pids.events",), "max") > 0

    def enforces(self, controller: str) -> bool:
        """Return whether a group can limit ``memory`` or ``pids``."""
        names = {"memory": ("memory.max", "memory.limit_in_bytes"), "pids": ("pids.max",)}
        return any(self._files(names[controller]))

    def kill(self) -> None:
        """Kill all processes in the groups; ones that start meanwhile need another call."""
        self._write(("pids.max",), "0")  # no process can fork
        if self._write(("cgroup.kill",), "1"):
            return
        for pid in self.processes():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def freeze(self, frozen: bool) -> bool:
        """Stop all processes, or let them continue; return whether the kernel can."""
        return bool(self._write(("cgroup.freeze",), "1" if frozen else "0"))

    def processes(self) -> set[int]:
        """Return the processes in the groups; zombies are in none."""
        pids: set[int] = set()
        for directory in self.directories:
            with suppress(OSError):
                text = (directory / "cgroup.procs").read_text(encoding="ascii")
                pids.update(int(line) for line in text.split() if line != "0")
        return pids

    def remove(self) -> None:
        """Remove the groups, which must be empty."""
        for directory in self.directories:
            # A job that runs as root may have made groups in its own.
            for path, _, _ in os.walk(directory, topdown=False):
                with suppress(OSError):
                    os.rmdir(path)

    def _files(self, names: tuple[str, ...]) -> Iterator[Path]:
        for directory in self.directories:
            for name in names:
                if (directory / name).exists():
                    yield directory / name

    def _write(self, names: tuple[str, ...], text: str) -> list[Path]:
        """Write to the files that exist; return those that accepted the text."""
        written = []
        for path in self._files(names):
            with suppress(OSError):
                path.write_text(text, encoding="ascii")
                written.append(path)
        return written

    def _event(self, names: tuple[str, ...], key: str) -> int:
        for path in self._files(names):
            with suppress(OSError, ValueError):
                lines = (line.split() for line in path.read_text(encoding="ascii").splitlines())
                return next((int(words[1]) for words in lines if words[0] == key), 0)
        return 0


def create(lease_directory: Path, name: str) -> Cgroup | None:
    """Create the groups of a lease and record them; return None where there can be none."""
    directories = []
    covered: set[str] = set()
    for parents in (_v2_parents(), *map(_v1_parents, _CONTROLLERS)):
        for parent, controller in parents:
            if controller in covered:
                break
            with suppress(OSError):
                directory = _make(parent, name)
                directories.append(directory)
                covered |= {c for c in _CONTROLLERS if any(directory.glob(f"{c}.*max*"))}
                break
    if not directories:
        return None
    record = json.dumps([str(directory) for directory in directories])
    path = lease_directory / _RECORD
    path.write_text(record, encoding="utf-8")
    path.chmod(0o600)
    return Cgroup(tuple(directories))


def controllers() -> set[str] | None:
    """Return the controllers that groups of leases have here, None if there can be no group."""
    with tempfile.TemporaryDirectory() as name:
        group = create(Path(name), f"check-{os.getpid()}")
    if group is None:
        return None
    try:
        return {controller for controller in _CONTROLLERS if group.enforces(controller)}
    finally:
        group.remove()


def load(lease_directory: Path) -> Cgroup | None:
    """Return the groups that a lease's keeper recorded, None if it has none."""
    try:
        names = json.loads(untrusted_file.read(lease_directory / _RECORD, _MAX_RECORD_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    mounts = [mount for mount, _, _ in _mounts()]
    directories = tuple(
        path
        for path in map(Path, names)
        if ".." not in path.parts and path.parent.name == PARENT
        if any(mount in path.parents for mount in mounts) and path.is_dir()
    )
    return Cgroup(directories) if directories else None


def _make(parent: Path, name: str) -> Path:
    group = parent / PARENT
    group.mkdir(exist_ok=True)
    for path in (parent, group):  # cgroup v2 only
        with suppress(OSError):
            (path / "cgroup.subtree_control").write_text("+memory +pids", encoding="ascii")
    (group / name).mkdir(exist_ok=True)
    return group / name


def _v2_parents() -> Iterator[tuple[Path, str]]:
    """Yield the places for groups in cgroup v2: its root, which has controllers, and our own."""
    for mount, kind, options in _mounts():
        if kind == "cgroup2":
            yield mount, ""
            yield _own(mount, options, ""), ""


def _v1_parents(controller: str) -> Iterator[tuple[Path, str]]:
    """Yield the place for groups in the hierarchy of a controller: within our own group."""
    for mount, kind, options in _mounts():
        if kind == "cgroup" and controller in options:
            yield _own(mount, options, controller), controller


def _own(mount: Path, options: tuple[str, ...], controller: str) -> Path:
    root = options[0]
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return mount / path.removeprefix(root.rstrip("/")).lstrip("/")
    return mount


def _mounts() -> list[tuple[Path, str, tuple[str, ...]]]:
    """Return (mount point, type, (root, *options)) of each hierarchy of control groups."""
    mounts = []
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
            own, _, rest = line.partition(" - ")
            kind, _, options = rest.split(" ", 2)
            if kind in ("cgroup", "cgroup2"):
                words = own.split(" ")
                mounts.append((Path(words[4]), kind, (words[3], *options.split(","))))
    return mounts
