"""Confinement of a gang's members: Unix user, control group, and their end with their keeper."""

import ctypes
import errno
import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from fairlead.code_snapshot.unpacking import unpack
from fairlead.engines.base import LaunchOrder
from fairlead.engines.keeper.confinement import cgroup
from fairlead.engines.keeper.confinement.tenant_user import (
    TenantUser,
    find_user,
    give_directory,
    make_directory,
    make_file,
)
from fairlead.engines.keeper.orphans import descendants, kill_and_wait
from fairlead.job import checkpoint

_LIBC = ctypes.CDLL(None)
_SIGNAL_ON_PARENT_DEATH, _CHILD_SUBREAPER, _NO_NEW_PRIVILEGES = 1, 36, 38  # PR_SET_…
_OOM_SCORE = "500"
"""makes the kernel kill jobs before the server when the machine runs out of memory"""
_KILL_TIMEOUT_S = 10.0
_RUN_TIMEOUT_S = 30.0
_MAX_ERROR_BYTES = 1000


class Confinement:
    """Limits and identity of the members of one lease."""

    def __init__(self, directory: Path, order: LaunchOrder) -> None:
        self._directory = directory
        self._order = order
        self._user: TenantUser | None = None
        self._cgroup: cgroup.Cgroup | None = None

    def prepare(self, *, in_cgroup: bool) -> None:
        """Adopt the members' orphans, and make the directories and the control group.

        Raises OSError, FencedError if a later lease may write, or InputError if the members
        cannot run as the tenant's user.
        """
        _LIBC.prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)
        if self._order.user:
            self._user = find_user(self._order.user)
            os.umask(0o022)
            self._make_directories(self._user)
        if self._order.code_snapshot:
            owner = None if self._user is None else (self._user.uid, self._user.gid)
            unpack(Path(self._order.code_snapshot), Path(self._order.directory), owner)
        if in_cgroup:
            parent = hashlib.sha256(os.fsencode(self._directory.parent)).hexdigest()[:16]
            self._cgroup = cgroup.create(self._directory, f"{parent}-{self._directory.name}")
        self._limit()

    def open_directory_of(self, order: LaunchOrder) -> None:
        """Make the checkpoint directory of a later order; raises as ``prepare`` does."""
        if self._user is not None and order.checkpoint_dir != self._order.checkpoint_dir:
            self._make_checkpoint_directory(order, self._user)

    def continue_with(self, order: LaunchOrder, new: range) -> None:
        """Apply a later order, with new members of these numbers."""
        self._order = order
        self._limit()
        for index in new:
            path = self._directory / f"status.{index}"
            path.unlink(missing_ok=True)  # of an earlier member
            if self._user is not None:
                make_file(path, self._user)

    def _limit(self) -> None:
        if self._cgroup is not None:
            gib = self._order.memory_gib
            memory_bytes = None if gib is None else int(gib * 2**30)
            self._cgroup.limit(memory_bytes, self._order.max_processes)

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that name the tenant's user."""
        return {} if self._user is None else self._user.environment

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        output: int,
        passed: Sequence[int] = (),
    ) -> subprocess.Popen[bytes]:
        """Start a member in a new session; OSError tells why it cannot start.

        The member inherits the descriptors ``passed``.
        """
        if self._user is not None:  # a program may open /dev/stdout
            os.fchown(output, self._user.uid, self._user.gid)
        reading, writing = os.pipe()

        def enter() -> None:
            try:
                self._enter()
            except OSError as error:
                os.write(writing, str(error).encode(errors="replace")[:_MAX_ERROR_BYTES])
                raise

        try:
            return subprocess.Popen(
                command,
                cwd=None if self._user else self._order.directory or None,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=passed,
                preexec_fn=enter,  # noqa: PLW1509  # a keeper has no threads
            )
        except subprocess.SubprocessError as error:  # `enter` failed
            os.set_blocking(reading, False)
            with suppress(BlockingIOError):
                raise OSError(os.read(reading, _MAX_ERROR_BYTES).decode()) from error
            raise OSError(str(error)) from error
        finally:
            os.close(reading)
            os.close(writing)

    def run(self, command: Sequence[str] | None) -> None:
        """Run a command as the members' user to its end, whatever that is."""
        if command is None:
            return
        user, groups = self._user, [] if self._user is None else self._user.groups
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                user=None if user is None else user.uid,
                group=None if user is None else user.gid,
                extra_groups=groups or None,
                timeout=_RUN_TIMEOUT_S,
                check=False,
            )

    def limit_exceeded(self) -> str | None:
        """Return the limit at which the kernel has refused or killed a process, if any."""
        if self._cgroup is None:
            return None
        if self._order.memory_gib is not None and self._cgroup.has_run_out_of_memory():
            return f"memory limit: {self._order.memory_gib:g} GiB used, ended by the kernel"
        if self._cgroup.has_run_out_of_processes():
            return f"process limit: {self._order.max_processes} processes"
        return None

    def enforces(self, controller: str) -> bool:
        """Return whether the kernel enforces the limit of ``memory`` or ``pids``."""
        return self._cgroup is not None and self._cgroup.enforces(controller)

    def freeze(self, frozen: bool) -> None:
        """Stop all processes of the lease, or let them continue."""
        if self._cgroup is not None and self._cgroup.freeze(frozen):
            return
        for pid in descendants(os.getpid()):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGSTOP if frozen else signal.SIGCONT)

    def kill(self) -> None:
        """Kill all processes of the control group."""
        if self._cgroup is not None:
            self._cgroup.kill()

    def kill_and_remove(self) -> None:
        """Kill all processes of the control group, wait until they are gone, and remove it."""
        if self._cgroup is None:
            return
        until = time.monotonic() + _KILL_TIMEOUT_S
        while True:
            self._cgroup.kill()
            if not (left := self._cgroup.processes()) or time.monotonic() > until:
                break
            kill_and_wait(left)
        self._cgroup.remove()
        self._cgroup = None

    def _make_directories(self, user: TenantUser) -> None:
        """Make the directories of the job: the tenant writes to its checkpoints only.

        Logs, orders and control files stay the server's. The tenant's user can read the fence and
        lock its file, and write the status files of its members.
        """
        order = self._order
        self._make_checkpoint_directory(order, user)
        make_directory(Path(order.log_dir), 0o700)
        self._directory.chmod(0o711)
        for index in range(len(order.devices)):
            make_file(self._directory / f"status.{index}", user)

    def _make_checkpoint_directory(self, order: LaunchOrder, user: TenantUser) -> None:
        job_dir, parent = Path(order.log_dir).parent, Path(order.checkpoint_dir).parent
        if parent.parent == job_dir:  # of a copy of the job
            make_directory(job_dir, 0o711)
        make_directory(parent, 0o711)
        control = Path(checkpoint.control_directory(order.checkpoint_dir, separate=True))
        if not control.is_dir():
            checkpoint.require(order.checkpoint_dir, order.lease)
        make_directory(control, 0o755)
        with suppress(FileExistsError):
            Path(order.checkpoint_dir).mkdir(mode=0o700)
        give_directory(Path(order.checkpoint_dir), user.uid, user.gid)

    def _enter(self) -> None:
        """Confine the calling process, which is about to become a member."""
        if self._cgroup is not None:
            self._cgroup.join()
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE, encoding="ascii")
        if self._user is not None:
            os.setgroups(self._user.groups)
            os.setresgid(self._user.gid, self._user.gid, self._user.gid)
            os.setresuid(self._user.uid, self._user.uid, self._user.uid)
            _LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        # After the change of the user, which clears it.
        _LIBC.prctl(_SIGNAL_ON_PARENT_DEATH, signal.SIGKILL, 0, 0, 0)
        if self._user is not None:
            os.chdir(self._order.directory or "/")
            if not os.access(self._order.checkpoint_dir, os.W_OK | os.X_OK):
                problem = f"user {self._user.name} cannot write to it"
                raise PermissionError(errno.EACCES, problem, self._order.checkpoint_dir)
