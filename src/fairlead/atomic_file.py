"""Atomic replacement of files: after a crash a file has its old content or the new, never a part.

Uses the standard library only, so that the job library can import it.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import BinaryIO

from fairlead.untrusted_file import give_to_directory_owner


def replace_file(
    path: str | os.PathLike[str],
    *chunks: bytes | memoryview,
    mode: int = 0o666,
    durable: bool = True,
    sync_directory: bool = True,
    for_directory_owner: bool = False,
    before_rename: Callable[[], object] | None = None,
) -> None:
    """Replace a file by one that holds ``chunks``; on an OSError the old file stays.

    See ``replacement`` for the options.
    """
    with replacement(
        path,
        mode=mode,
        durable=durable,
        sync_directory=sync_directory,
        for_directory_owner=for_directory_owner,
        before_rename=before_rename,
    ) as file:
        for chunk in chunks:
            file.write(chunk)


@contextmanager
def replacement(
    path: str | os.PathLike[str],
    *,
    mode: int = 0o666,
    durable: bool = True,
    sync_directory: bool = True,
    for_directory_owner: bool = False,
    before_rename: Callable[[], object] | None = None,
) -> Iterator[BinaryIO]:
    """Replace a file by the one that the block writes; on an OSError the old file stays.

    The new content goes to ``PATH.PID.tmp`` in the same directory, created with ``mode``, and is
    renamed. A ``durable`` replacement survives a power failure once this returns: content and
    directory are synced. With ``sync_directory=False`` only the content is, so that a power
    failure may bring the old file back, until the caller or the next replacement in the directory
    syncs that. With ``durable=False`` nothing is synced: for files that no reader needs after a
    power failure. With ``for_directory_owner`` a file that root makes belongs to the directory's
    owner. ``before_rename`` is called once the new content is complete.
    """
    target = os.fspath(path)
    temporary = _temporary_name(target)
    try:
        with open(temporary, "wb", opener=partial(_create, mode)) as file:
            if for_directory_owner:
                give_to_directory_owner(file.fileno(), os.path.dirname(target) or ".")
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if before_rename is not None:
            before_rename()
        os.replace(temporary, target)
    except OSError:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    if durable and sync_directory:
        fsync_directory(os.path.dirname(target) or ".")


def replace_text(
    path: str | os.PathLike[str], text: str, *, mode: int = 0o666, durable: bool = True
) -> None:
    """Replace a file by one that holds ``text`` in UTF-8; see ``replace_file``."""
    replace_file(path, text.encode(), mode=mode, durable=durable)


def fsync_directory(directory: str) -> None:
    """Make the names of a directory's files survive a power failure."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _temporary_name(target: str) -> str:
    """Return the name of the temporary file; remove a file or a link that a crash left there.

    Beside a directory, which only a hostile job makes, the name is one that no job can guess.
    """
    name = f"{target}.{os.getpid()}.tmp"
    try:
        os.unlink(name)
    except FileNotFoundError:
        pass
    except OSError:
        return f"{target}.{os.getpid()}.{os.urandom(8).hex()}.tmp"
    return name


def _create(mode: int, name: str, flags: int) -> int:
    return os.open(name, flags | os.O_EXCL | os.O_NOFOLLOW, mode)
