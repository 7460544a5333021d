"""Unpacking of a code snapshot into the working directory of its job.

A keeper may do this as root for a tenant. Nobody else can reach the directory until it is
complete, and links are made last, so that no file of the snapshot can be written through one.
"""

import errno
import os
from contextlib import suppress
from io import BufferedReader
from pathlib import Path

from fairlead import untrusted_file
from fairlead.code_snapshot.archive import Entry, read_header, verify
from fairlead.untrusted_file import UnusableFileError

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK_BYTES = 1 << 20

Owner = tuple[int, int]
"""Unix user and group"""


def unpack(snapshot: Path, target: Path, owner: Owner | None = None) -> None:
    """Make a directory with a snapshot's files, unless it exists; give it to its owner.

    Raises UnusableFileError if the snapshot is missing or damaged.
    """
    if os.path.lexists(target):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.urandom(8).hex()}")
    part.mkdir(mode=0o700)
    try:
        with open(_open(snapshot), "rb") as file:
            verify(file, snapshot.stem)
            file.seek(0)
            _write_files(file, part, owner)
        if owner is not None:
            os.chown(part, *owner, follow_symlinks=False)
        _rename(part, target)
    finally:
        with suppress(FileNotFoundError):
            untrusted_file.remove_tree(part)


def _open(snapshot: Path) -> int:
    try:
        return untrusted_file.open_regular(snapshot)
    except FileNotFoundError:
        problem = f"code snapshot {snapshot.stem[:12]} is missing: submit the job again"
        raise UnusableFileError(problem) from None


def _write_files(file: BufferedReader, part: Path, owner: Owner | None) -> None:
    entries = read_header(file)
    for entry in entries:
        path = part / entry.path
        _make_parents(part, path.parent, owner)
        if entry.kind != "l":
            _write_file(file, path, entry, owner)
    for entry in entries:
        if entry.kind == "l":
            path = part / entry.path
            os.symlink(entry.target, path)
            if owner is not None:
                os.chown(path, *owner, follow_symlinks=False)


def _make_parents(part: Path, directory: Path, owner: Owner | None) -> None:
    missing = []
    while directory != part and not directory.exists():
        missing.append(directory)
        directory = directory.parent
    for path in reversed(missing):
        path.mkdir(mode=0o755)
        if owner is not None:
            os.chown(path, *owner, follow_symlinks=False)


def _write_file(file: BufferedReader, path: Path, entry: Entry, owner: Owner | None) -> None:
    descriptor = os.open(path, _NEW_FILE, 0o755 if entry.kind == "x" else 0o644)
    with open(descriptor, "wb") as made:
        left = entry.size
        while left:
            chunk = file.read(min(left, _CHUNK_BYTES))
            if not chunk:
                raise UnusableFileError(f"{path.name}: the code snapshot is cut off")
            made.write(chunk)
            left -= len(chunk)
        if owner is not None:
            os.fchown(descriptor, *owner)
        made.flush()
        os.fsync(descriptor)


def _rename(part: Path, target: Path) -> None:
    """Give the directory its name, unless the gang's keeper on another node was faster."""
    try:
        part.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
