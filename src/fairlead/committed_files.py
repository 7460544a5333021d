"""Files of a job's committed checkpoint, read while the job may replace or damage them.

Tenants own these directories. No link is followed, and only regular files of the directory's owner
are read. The files of a checkpoint are opened together: they stay readable when a newer one
replaces them.
"""

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import BinaryIO, NamedTuple

from fairlead import untrusted_file
from fairlead.job import checkpoint
from fairlead.job.committed import CommittedCheckpoint
from fairlead.untrusted_file import UnusableFileError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_GENERATIONS = 5
"""checkpoints of a job that are tried, while newer ones replace them"""
_SPARSE_BYTES, _SPARSE_FACTOR = 64 << 20, 16
"""a larger file than this, and than so many times its space on disk, would only fill the copy"""


class OpenCheckpoint(NamedTuple):
    """A committed checkpoint with its open files."""

    committed: CommittedCheckpoint
    files: Mapping[str, BinaryIO]
    """name → file, each once"""


@contextmanager
def open_directory(path: str | os.PathLike[str], parent: int | None = None) -> Iterator[int]:
    """Open a directory; NotADirectoryError if it is a link."""
    descriptor = os.open(path, _DIRECTORY, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def open_owned(name: str, directory: int) -> Iterator[BinaryIO]:
    """Open a regular file of the directory's owner; others may be linked into it."""
    with open(untrusted_file.open_regular(name, dir_fd=directory), "rb") as file:
        status, directory_owner = os.fstat(file.fileno()), os.fstat(directory).st_uid
        if status.st_uid != directory_owner and os.geteuid() in (0, status.st_uid):
            raise UnusableFileError(f"{name}: not a file of its directory's owner")
        if status.st_size > max(_SPARSE_BYTES, _SPARSE_FACTOR * status.st_blocks * 512):
            raise UnusableFileError(f"{name}: a sparse file")
        yield file


@contextmanager
def open_committed(directory: int) -> Iterator[OpenCheckpoint | None]:
    """Open the files of the committed checkpoint together; None if there is none.

    Raises UnusableFileError if the job has damaged it, or replaces it all the time.
    """
    for _ in range(_MAX_GENERATIONS):
        # The descriptor's own path: nobody can exchange the directory behind it.
        committed = checkpoint.latest(f"/proc/self/fd/{directory}")
        if committed is None:
            yield None
            return
        with ExitStack() as stack:
            try:
                files = {
                    name: stack.enter_context(open_owned(name, directory))
                    for name in dict.fromkeys(committed.files)
                }
            except FileNotFoundError:
                continue  # a newer checkpoint has replaced it
            except OSError as error:
                if error.errno != errno.EMFILE:
                    raise
                raise UnusableFileError("its checkpoint has too many files") from None
            yield OpenCheckpoint(committed, files)
            return
    raise UnusableFileError("it is replaced too often")
