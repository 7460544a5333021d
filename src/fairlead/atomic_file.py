"""Atomic replacement of files: after a crash a file has its old content or the new, never a part.

Uses the standard library only, so that the job library can import it.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import BinaryIO, TypedDict, Unpack

from fairlead.untrusted_file import give_to_directory_owner


class ReplacementOptions(TypedDict, total=False):
    """Options of a replacement."""

    mode: int
    """permissions of the new file, before the umask; default: 0o666"""
    durable: bool
    """False: nothing is synced, for files that no reader needs after a power failure"""
    sync_directory: bool
    """False: only the content is synced, so that a power failure may bring the old file back,
    until the caller or the next replacement in the directory syncs that"""
    for_directory_owner: bool
    """a file that root makes belongs to the directory's owner"""
    before_rename: Callable[[], object] | None
    """called once the new content is complete"""


def replace_file(
    path: str | os.PathLike[str],
    *chunks: bytes | memoryview,
    **options: Unpack[ReplacementOptions],
) -> None:
    """Replace a file by one that holds ``chunks``; on an OSError the old file stays."""
    with replacement(path, **options) as file:
        for chunk in chunks:
            file.write(chunk)


@contextmanager
def replacement(
    path: str | os.PathLike[str], **options: Unpack[ReplacementOptions]
) -> Iterator[BinaryIO]:
    """Replace a file by the one that the block writes; on an OSError the old file stays.

    The new content goes to ``PATH.PID.tmp`` in the same directory and is renamed. By default the
    replacement survives a power failure once this returns: content and directory are synced.
    """
    durable, before_rename = options.get("durable", True), options.get("before_rename")
    target = os.fspath(path)
    temporary = _temporary_name(target)
    try:
        with open(temporary, "wb", opener=partial(_create, options.get("mode", 0o666))) as file:
            if options.get("for_directory_owner", False):
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
    if durable and options.get("sync_directory", True):
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
