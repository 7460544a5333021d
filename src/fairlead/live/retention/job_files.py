"""Files of ended jobs, measured and removed by descriptors: tenants may own these directories."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from fairlead import untrusted_file

FileKind = Literal["logs", "checkpoints"]
_DIRECTORIES: dict[FileKind, tuple[str, ...]] = {
    "logs": ("logs",),
    "checkpoints": ("checkpoint", "checkpoint.control", "copies"),
}
"""directories in a job's directory"""
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_ENTRIES, _MAX_DEPTH = 100_000, 64
"""entries of a directory tree that are measured"""


def remove_files(job_dir: Path, kind: FileKind) -> None:
    """Remove the logs or the checkpoints of a job, if there are any; follow no links."""
    with suppress(FileNotFoundError), _opened(job_dir) as directory:
        for name in _DIRECTORIES[kind]:
            _remove(name, directory)


def remove_job(job_dir: Path) -> None:
    """Remove all files of a job, if there are any; follow no links."""
    _remove(job_dir)


def size_of(job_dir: Path, kind: FileKind) -> int:
    """Return the bytes on disk of the logs or the checkpoints of a job."""
    total = 0
    with suppress(OSError), _opened(job_dir) as directory:
        for name in _DIRECTORIES[kind]:
            with suppress(OSError), _opened(name, directory) as tree:
                total += _measure(tree)
    return total


def _remove(path: str | Path, parent: int | None = None) -> None:
    try:
        untrusted_file.remove_tree(path, dir_fd=parent)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        os.unlink(path, dir_fd=parent)  # a job has put a file or a link in its place


def _measure(directory: int, depth: int = 0) -> int:
    total = 0
    with os.scandir(directory) as entries:
        for number, entry in enumerate(entries):
            if number == _MAX_ENTRIES:
                break
            with suppress(OSError):
                total += entry.stat(follow_symlinks=False).st_blocks * 512
                if entry.is_dir(follow_symlinks=False) and depth < _MAX_DEPTH:
                    with _opened(entry.name, directory) as inner:
                        total += _measure(inner, depth + 1)
    return total


@contextmanager
def _opened(path: str | Path, parent: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, _FLAGS, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
