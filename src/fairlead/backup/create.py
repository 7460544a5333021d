"""Backup of a server that runs or is stopped: database first, then the files of its jobs."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from fairlead.backup import layout
from fairlead.backup.database import copy_database
from fairlead.backup.job_files import JobFiles
from fairlead.backup.layout import Header
from fairlead.backup.writer import ArchiveWriter
from fairlead.model.errors import InputError
from fairlead.version import __version__

_SUFFIXES = (".tar", ".tar.gz", ".tgz")

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupOptions:
    """Parts of a backup that are left out by default."""

    logs: bool = False
    secrets: bool = False


@dataclass(frozen=True, slots=True)
class Backup:
    """A complete backup."""

    path: Path
    jobs: int
    """jobs with files"""
    size: int
    """bytes of all files in it"""
    warnings: tuple[str, ...]


def create_backup(
    data: Path,
    database: sa.URL,
    destination: Path,
    options: BackupOptions,
    progress: Progress = lambda _: None,
) -> Backup:
    """Write a backup of a data directory to one new file; raise InputError if it exists.

    A checkpoint that is newer than the database costs nothing when it is restored, an older one
    would cost its steps: so the database is copied first.
    """
    path = _target(destination)
    warnings: list[str] = []
    with ArchiveWriter(path) as archive, _temporary(path) as copied:
        progress("copying the database")
        schema = copy_database(database, copied)
        header = Header(
            version=__version__,
            schema=schema,
            made_at=time.time(),
            host=os.uname().nodename,
            logs=options.logs,
            secrets=options.secrets,
        )
        archive.add_bytes(layout.HEADER, header.as_bytes())
        with copied.open("rb") as file:
            archive.add_file(layout.DATABASE, file)
        copied.unlink()
        for name in (layout.DEVICES, *((layout.SECRETS,) if options.secrets else ())):
            with suppress(FileNotFoundError):
                archive.add_bytes(name, (data / name).read_bytes())
        files = JobFiles(archive, lambda file, problem: warnings.append(f"{file}: {problem}"))
        jobs = _add_jobs(files, data, archive, options, progress)
        archive.commit()
    return Backup(path, jobs, archive.size, tuple(warnings))


def _add_jobs(
    files: JobFiles,
    data: Path,
    archive: ArchiveWriter,
    options: BackupOptions,
    progress: Progress,
) -> int:
    """Add the files of all jobs and their code; return the number of jobs."""
    with suppress(FileNotFoundError), _directory(data / layout.CODE_SNAPSHOTS) as directory:
        files.add_tree(layout.CODE_SNAPSHOTS, directory)
    names: list[str] = []
    with suppress(FileNotFoundError), _directory(data / layout.JOBS) as jobs:
        names = sorted(os.listdir(jobs))
        for number, name in enumerate(names, start=1):
            files.add_job(name, jobs, logs=options.logs)
            progress(f"job {number} of {len(names)}, {archive.size / (1 << 20):.1f} MiB")
    return len(names)


def _target(destination: Path) -> Path:
    """Return the file to write: a new name, with the time, in a directory."""
    if destination.is_dir():
        name = time.strftime("fairlead-%Y%m%dT%H%M%SZ.tar", time.gmtime())
        destination = destination / name
    if not destination.name.endswith(_SUFFIXES):
        fix = f"expected a directory, or a name that ends with {', '.join(_SUFFIXES)}"
        raise InputError(f"cannot be {destination.name!r}", fix=fix, field="destination")
    if destination.exists():
        problem, fix = f"{destination} exists", "expected a new name, or a directory"
        raise InputError(problem, fix=fix, field="destination")
    if not destination.parent.is_dir():
        problem, fix = f"no directory {destination.parent}", "create it first"
        raise InputError(problem, fix=fix, field="destination")
    return destination


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Make an empty private file beside a path; remove it at the end."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.db")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with suppress(FileNotFoundError):
            temporary.unlink()
        os.close(os.open(temporary, flags, 0o600))
        yield temporary
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                temporary.with_name(temporary.name + suffix).unlink()


@contextmanager
def _directory(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
