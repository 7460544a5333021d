"""Files in directories that jobs can write: opened without following links or waiting.

A job may put a link, a FIFO, a directory or an endless file wherever the scheduler expects a small
regular file. Uses the standard library only, so that the job library can import it.
"""

import errno
import os
import stat

Path = str | os.PathLike[str]

_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_UNUSABLE_ERRNOS = (
    errno.ELOOP,
    errno.ENXIO,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.EACCES,
    errno.EPERM,
    errno.ENODEV,
)
"""failures to open a file that a job can cause"""


class UnusableFileError(OSError):
    """A file is not a regular one, too large, another user's, or does not have its format."""


def open_regular(
    path: Path, flags: int = os.O_RDONLY, mode: int = 0o666, *, dir_fd: int | None = None
) -> int:
    """Return a descriptor of a regular file; a new one belongs to its directory's owner.

    Raises FileNotFoundError if there is none, UnusableFileError if it is not a regular file.
    """
    try:
        descriptor = os.open(path, flags | _SAFE, mode, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in _UNUSABLE_ERRNOS:
            raise UnusableFileError(f"{os.fspath(path)}: not a usable file") from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnusableFileError(f"{os.fspath(path)}: not a regular file")
        if flags & os.O_CREAT:
            give_to_directory_owner(descriptor, os.path.dirname(path) or ".")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read(path: Path, max_bytes: int) -> bytes:
    """Return the content of a regular file of limited size.

    Raises FileNotFoundError if there is none, UnusableFileError if it cannot be used.
    """
    descriptor = open_regular(path)
    with open(descriptor, "rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise UnusableFileError(f"{os.fspath(path)}: larger than {max_bytes} bytes")
    return content


def open_owned(path: Path) -> int:
    """Return a descriptor for reading a regular file that the directory's owner made.

    A tenant may link files of others into its directory, or replace the directory by a link; the
    server must not read those files for it.
    """
    parent, name = os.path.split(path)
    try:
        directory = os.open(parent or ".", os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    except NotADirectoryError as error:
        raise UnusableFileError(f"{parent}: not a directory") from error
    try:
        descriptor = open_regular(name, dir_fd=directory)
        owner, directory_owner = os.fstat(descriptor).st_uid, os.fstat(directory).st_uid
    finally:
        os.close(directory)
    if owner != directory_owner and os.geteuid() in (0, owner):
        os.close(descriptor)
        raise UnusableFileError(f"{os.fspath(path)}: not a file of its directory's owner")
    return descriptor


def give_to_directory_owner(descriptor: int, directory: Path) -> None:
    """Give an own file to the owner of its directory, which has to read it; needs root."""
    if os.geteuid() != 0:
        return
    made, parent = os.fstat(descriptor), os.stat(directory)
    # A file with a second name may be another user's, linked into the directory.
    if made.st_uid == 0 != parent.st_uid and made.st_nlink == 1:
        os.fchown(descriptor, parent.st_uid, parent.st_gid)


def remove_tree(path: Path, *, dir_fd: int | None = None) -> None:
    """Remove a directory however deep a job has made it; follow no links.

    Deeper directories are moved up, so that neither the depth of calls nor the number of open
    files limits it. Root takes the directories from their owner, who can then add nothing.
    """
    top = _open_to_empty(path, dir_fd)
    try:
        while names := os.listdir(top):
            for name in names:
                _remove_entry(name, top)
    finally:
        os.close(top)
    os.rmdir(path, dir_fd=dir_fd)


def _remove_entry(name: str, top: int) -> None:
    try:
        os.unlink(name, dir_fd=top)
        return
    except IsADirectoryError:
        inner = _open_to_empty(name, top)
    try:
        for child in os.listdir(inner):
            try:
                os.unlink(child, dir_fd=inner)
            except IsADirectoryError:
                up = f".{os.urandom(8).hex()}"
                os.rename(child, up, src_dir_fd=inner, dst_dir_fd=top)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)


def _open_to_empty(path: Path, parent: int | None = None) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    directory = os.open(path, flags, dir_fd=parent)
    if os.geteuid() == 0:
        os.fchown(directory, 0, 0)
        os.fchmod(directory, 0o700)
    return directory
