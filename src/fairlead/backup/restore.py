"""Restoration of a backup: all checks come first, and no file of an earlier server is deleted."""

import fcntl
import os
import pwd
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from fairlead.atomic_file import fsync_directory
from fairlead.backup import layout
from fairlead.backup.database import load_database, sqlite_file
from fairlead.backup.layout import Header
from fairlead.backup.reader import Member, Verified, members, naming, verify
from fairlead.engines.keeper import lease_dir
from fairlead.model.errors import InputError
from fairlead.store import Restoration, tables
from fairlead.untrusted_file import remove_tree

_CHUNK = 1 << 20
_TENANT_DEPTH = 3
"""parts of the path of the directory that is a tenant's: jobs/ID/checkpoint"""
_SPARE_BYTES = 64 << 20
"""free space that a restoration leaves"""
_SERVER_FILES = (
    *("admin.token", "code-snapshots", "devices.json", "jobs", "leases", "quarantine"),
    "server.json",
)
"""files of a server in its data directory, besides its database; its key of secrets stays"""
_STAGING, _ASIDE = ".restoring-", "before-restore-"
"""first part of the names of directories for new files, and for those of an earlier server"""
_SIGNS_OF_A_SERVER = {"fairlead.lock", "fairlead.toml", layout.SECRETS}
"""files that restorations leave in a data directory"""


@dataclass(frozen=True, slots=True)
class Restored:
    """A restored backup."""

    header: Header
    size: int
    moved_to: Path | None
    """directory with the files of the earlier server"""


def restore_backup(
    archive: Path,
    data: Path,
    database: sa.URL,
    *,
    force: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Restored:
    """Restore a backup to a data directory and a database that hold no server's data.

    ``force`` moves the files of an earlier server aside, with a copy of its database if that is
    no file. Leases are not part of a backup: jobs that ran start again from their checkpoints.
    """
    progress("verifying checksums")
    try:
        verified = verify(archive)
    except (FileNotFoundError, IsADirectoryError) as error:
        fix = "expected a file of `fairlead backup`"
        raise InputError(str(error.strerror), fix=fix, field=str(archive)) from None
    if verified.header.schema > tables.SCHEMA_VERSION:
        problem = (
            f"schema {verified.header.schema} of Fairlead {verified.header.version}, but this"
            f" version reads up to {tables.SCHEMA_VERSION}"
        )
        raise InputError(problem, fix="install that version or a newer one", field=str(archive))
    file = sqlite_file(database)
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not force:
        _require_no_other_files(data, archive, file)
    with _locked(data, file):
        present = _server_files(data, file)
        _require_replaceable(data, present, force=force)
        _require_space(data, verified)
        with _staging(data) as staging:
            progress("copying files")
            with naming(archive):
                _extract(archive, verified, staging)
            _note(verified.header).write(staging / layout.DATABASE)
            _give_to_owner(staging, data)
            with _aside(data) as aside:
                if file is None:
                    kept = aside / layout.DATABASE if force else None
                    load_database(staging / layout.DATABASE, database, kept)
                    (staging / layout.DATABASE).unlink()
                _move_aside(data, present, aside)
                moved_to = aside if any(aside.iterdir()) else None
            _move_in(staging, data, file)
    return Restored(verified.header, verified.size, moved_to)


def _note(header: Header) -> Restoration:
    """Return the note about the restoration of a backup by this process's user."""
    uid = os.getuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    return Restoration(
        made_at=header.made_at,
        made_on=header.host,
        restored_at=time.time(),
        user=user,
        uid=uid,
    )


# -- checks --------------------------------------------------------------------------------------


def _server_files(data: Path, database: Path | None) -> list[Path]:
    """Return the files of an earlier server."""
    files = [data / name for name in _SERVER_FILES]
    if database is not None:
        files += [database.with_name(database.name + end) for end in ("", "-wal", "-shm")]
    return [path for path in files if path.exists() or path.is_symlink()]


def _require_no_other_files(data: Path, archive: Path, database: Path | None) -> None:
    """Raise InputError if a directory that never was a server's has files besides the backup."""
    names = {path.name for path in data.iterdir() if path.resolve() != archive.resolve()}
    if names & _SIGNS_OF_A_SERVER or _server_files(data, database):
        return
    others = sorted(name for name in names if not name.startswith((_STAGING, _ASIDE)))
    if others:
        problem = f"{data} holds files that are not a server's ({others[0]})"
        fix = "expected an empty or new directory, or --force, which leaves them there"
        raise InputError(problem, fix=fix, field="data")


def _require_replaceable(data: Path, present: list[Path], *, force: bool) -> None:
    if present and not force:
        problem = f"{data} holds the data of a server ({present[0].name})"
        fix = "expected an empty directory, or --force, which moves them aside"
        raise InputError(problem, fix=fix, field="data")
    leases = data / "leases"
    if leases.is_dir() and any(map(lease_dir.is_alive, lease_dir.list_leases(leases).values())):
        problem = f"processes of jobs still run under {leases}"
        fix = "end them, or restart the machine: they would write to the restored checkpoints"
        raise InputError(problem, fix=fix, field="data")


def _require_space(data: Path, verified: Verified) -> None:
    free = shutil.disk_usage(data).free
    if free < verified.size + _SPARE_BYTES:
        problem = f"{verified.size / 1e9:.1f} GB to restore, but {free / 1e9:.1f} GB free"
        raise InputError(problem, fix=f"free space at {data}", field="data")


@contextmanager
def _locked(data: Path, database: Path | None) -> Iterator[None]:
    """Hold the lock of a server on a SQLite database; raise InputError if a server holds it."""
    if database is None:
        yield  # the database has a lock of its own
        return
    path = database.with_suffix(".lock")
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            problem = f"{data} is in use by a running server"
            raise InputError(problem, fix="stop the server first", field="data") from None
        yield


# -- files ---------------------------------------------------------------------------------------


@contextmanager
def _staging(data: Path) -> Iterator[Path]:
    """Make a private directory on the disk of the data; remove it at the end."""
    staging = data / f"{_STAGING}{os.getpid()}"
    staging.mkdir(mode=0o700)
    try:
        yield staging
    finally:
        remove_tree(staging)


def _extract(archive: Path, verified: Verified, staging: Path) -> None:
    for member in members(archive):
        if member.name in verified.checksums:
            path = staging / layout.require_safe_name(member.name)
            try:
                _write(member, path)
            except (NotADirectoryError, FileExistsError, IsADirectoryError):
                fix = "expected a file of `fairlead backup`"
                raise InputError(f"{member.name}: both file and directory", fix=fix) from None
            uid = _uid(member.owner)
            if uid is not None:
                _give(path, staging, uid)


def _write(member: Member, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(FileNotFoundError):
        path.unlink()  # a later copy replaces an earlier one
    mode = 0o700 if member.executable else 0o600
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(path, flags, mode), "wb") as file:
        while piece := member.content.read(_CHUNK):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def _give(path: Path, staging: Path, uid: int) -> None:
    """Give a file of a tenant to it, with its directories below that of its job."""
    os.chown(path, uid, -1, follow_symlinks=False)
    parts = path.relative_to(staging).parent.parts
    for depth in range(_TENANT_DEPTH, len(parts) + 1):
        os.chown(staging.joinpath(*parts[:depth]), uid, -1, follow_symlinks=False)


def _uid(owner: str) -> int | None:
    """Return the user to whom root gives a file; None for the user who restores."""
    if not owner or os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(owner).pw_uid or None
    except KeyError:
        return None


def _give_to_owner(staging: Path, data: Path) -> None:
    """Let root restore for the server's user, to whom the data directory belongs."""
    owner = data.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    for directory, _, names in os.walk(staging):
        for path in (directory, *(os.path.join(directory, name) for name in names)):
            if os.lstat(path).st_uid == 0:
                os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


@contextmanager
def _aside(data: Path) -> Iterator[Path]:
    """Make a directory for an earlier server's files in its data directory, unless none go there.

    It stays after an error, too: it may hold the only copy of a database.
    """
    aside = data / time.strftime(f"{_ASIDE}%Y%m%dT%H%M%SZ", time.gmtime())
    aside.mkdir(mode=0o700)
    try:
        yield aside
    finally:
        with suppress(OSError):  # it is not empty
            aside.rmdir()


def _move_aside(data: Path, present: list[Path], aside: Path) -> None:
    """Move the files of an earlier server to a directory in the data directory."""
    for path in present:
        # A database elsewhere stays on its disk.
        beside = path.with_name(f"{path.name}.{aside.name}")
        path.rename(aside / path.name if path.parent == data else beside)


def _move_in(staging: Path, data: Path, database: Path | None) -> None:
    """Move restored files into place, the database last: a server starts with it only."""
    for name in (layout.JOBS, layout.CODE_SNAPSHOTS, layout.DEVICES, layout.SECRETS):
        if (staging / name).exists():
            if name == layout.SECRETS:
                with suppress(FileNotFoundError):
                    (data / name).rename(data / f"{name}.before-restore")
            (staging / name).rename(data / name)
    if database is not None:
        shutil.move(staging / layout.DATABASE, database)
    fsync_directory(str(data))
