"""The Unix user of a tenant, and directories that are given to it.

The server and its keepers do this as root, in directories that the tenant may own already. So they
work on open descriptors, follow no link, and give away only files that cannot be another user's.
"""

import os
import pwd
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fairlead.model.errors import InputError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


@dataclass(frozen=True, slots=True)
class TenantUser:
    """Unix user as which the jobs of a tenant run."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    """all groups of the user"""
    home: str
    shell: str

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that name the user."""
        names = {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}
        return {**names, "SHELL": self.shell or "/bin/sh"}


def find_user(tenant: str) -> TenantUser:
    """Return the Unix user with the name of a tenant; InputError if jobs cannot run as it."""
    fix = f"expected a Unix user {tenant} for the tenant's jobs (useradd {tenant})"
    try:
        entry = pwd.getpwnam(tenant)
    except (KeyError, ValueError):
        raise InputError(f"no Unix user {tenant!r}", fix=fix, field="tenant") from None
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    if entry.pw_uid in (0, os.geteuid()) or 0 in groups:
        problem = f"Unix user {tenant!r} is the server's user, or a member of its group"
        fix = "expected a tenant whose Unix user has no privileges"
        raise InputError(problem, fix=fix, field="tenant")
    return TenantUser(
        entry.pw_name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir, entry.pw_shell
    )


def allow_traversal(data: Path) -> None:
    """Let tenants' processes reach their own directories and read nothing else."""
    for path in data.iterdir():
        if not path.is_symlink():
            path.chmod(0o700 if path.is_dir() else 0o600)
    for path in (data, data / "leases", data / "jobs"):
        path.mkdir(exist_ok=True)
        path.chmod(0o711)


def give_directory(path: Path, uid: int, gid: int, left_by_server: Iterable[str] = ()) -> None:
    """Give a directory to a user, with its files if it was another user's.

    Files in the user's own directory are the user's, except ones that the server once left.
    """
    directory = os.open(path, _DIRECTORY)
    try:
        owner = os.fstat(directory).st_uid
        is_new = owner != uid
        for name in os.listdir(directory) if is_new else left_by_server:
            _give_file(name, directory, owner if is_new else os.geteuid(), uid, gid)
        os.fchmod(directory, 0o700)
        os.fchown(directory, uid, gid)
    finally:
        os.close(directory)


def make_directory(path: Path, mode: int) -> None:
    """Make a directory of the server's user with this mode, or take it back from another user."""
    with suppress(FileExistsError):
        path.mkdir(parents=True, mode=mode)
    directory = os.open(path, _DIRECTORY)
    try:
        if os.fstat(directory).st_uid != os.geteuid():
            os.fchown(directory, os.geteuid(), os.getegid())
        os.fchmod(directory, mode)
    finally:
        os.close(directory)


def make_file(path: Path, user: TenantUser) -> None:
    """Make an empty file of a user in a directory of the server's."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        os.fchown(descriptor, user.uid, user.gid)
    finally:
        os.close(descriptor)


def _give_file(name: str, directory: int, owner: int, uid: int, gid: int) -> None:
    """Give a regular file with one name, of this owner, to a user."""
    try:
        descriptor = os.open(name, _FILE, dir_fd=directory)
    except OSError:  # missing, or a link
        return
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_uid == owner and status.st_nlink == 1:
            os.fchown(descriptor, uid, gid)
    finally:
        os.close(descriptor)
