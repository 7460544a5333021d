"""Checks that no other user can replace or read the files that a server relies on."""

import os
import stat
from pathlib import Path

from fairlead.model.errors import InputError

SECRET_FILES = ("admin.token", "secrets.key")
_FILES = (*SECRET_FILES, "server.json", "jobs", "leases", "quarantine")


def require_private_data(data: Path) -> None:
    """Raise InputError if another user could change a server's files or replace its directory."""
    for path in (data, *(data / name for name in _FILES)):
        require_private(path, field="data")
    _require_private_place(data, field="data")


def require_private(path: Path, *, field: str, readable: bool = True) -> None:
    """Raise InputError if another user could write a file or directory, or replace it.

    With ``readable=False`` no other user may read it either. A missing file is private.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        problem, fix = f"cannot check {path} ({error.strerror})", "expected an own file"
        raise InputError(problem, fix=fix, field=field) from None
    if status.st_uid not in (os.geteuid(), 0):
        problem = f"{path} belongs to another user (uid {status.st_uid})"
        raise InputError(problem, fix=f"run: chown -R {os.geteuid()} {path}", field=field)
    mode = "700" if stat.S_ISDIR(status.st_mode) else "600"
    if not readable and status.st_mode & 0o077:
        problem = f"{path} is accessible to other users"
        raise InputError(problem, fix=f"run: chmod {mode} {path}", field=field)
    if _is_writable_by_others(status):
        problem = f"{path} is writable by other users"
        raise InputError(problem, fix=f"run: chmod {mode} {path}", field=field)


def _require_private_place(directory: Path, *, field: str) -> None:
    """Raise InputError if another user could replace a directory by renaming it.

    In a directory with the sticky bit, such as /tmp, only owners rename their files.
    """
    for parent in directory.resolve().parents:
        status = parent.stat()
        if _is_writable_by_others(status) and not status.st_mode & stat.S_ISVTX:
            problem = f"other users can replace {directory}, because they can write to {parent}"
            fix = f"run: chmod go-w {parent}, or use another directory"
            raise InputError(problem, fix=fix, field=field)


def _is_writable_by_others(status: os.stat_result) -> bool:
    foreign_group = status.st_gid not in (os.getegid(), 0)
    return bool(status.st_mode & 0o002 or (foreign_group and status.st_mode & 0o020))
