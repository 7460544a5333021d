"""Logs of a job's processes, each in a few files of bounded size.

A process's log is a sequence of parts: ``LEASE.RANK.log``, then ``LEASE.RANK.log.OFFSET``, each
named after the byte of the log at which it begins. Parts are never renamed and only the oldest are
removed: a byte keeps its offset when earlier ones are dropped, and a writer or reader that is
killed leaves nothing to repair. ``cat LEASE.RANK.log*`` shows all that is kept.
"""

import os
import re
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from fairlead import untrusted_file
from fairlead.untrusted_file import UnusableFileError

MAX_PART_BYTES = 32 << 20
"""maximum size of a part"""
MAX_PARTS = 4
"""maximum number of parts of a log, including the one being written"""

Parts = list[tuple[int, Path]]
"""(first byte, file) of each part, oldest first"""


class LogFile:
    """Appends to a log; a full part is followed by a new one, and the oldest is dropped."""

    def __init__(self, path: Path, max_bytes: int = MAX_PART_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._begin, newest = (_parts(path) or [(0, path)])[-1]
        self._file: BinaryIO = _open_part(newest)
        self.end = self._begin + os.fstat(self._file.fileno()).st_size
        """number of bytes written to the log so far, dropped ones included"""

    def write(self, chunk: bytes, at: int | None = None) -> None:
        """Append a chunk; a full disk loses output, never the job.

        ``at`` is the chunk's offset in a copy of a log, which has gaps.
        """
        begin = self.end if at is None else at
        used = self.end - self._begin
        try:
            if begin > self.end or (used and used + len(chunk) > self._max_bytes):
                self._begin_part(begin)
            while chunk:
                written = self._file.write(chunk)
                self.end += written
                chunk = chunk[written:]
        except OSError:
            return

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _begin_part(self, begin: int) -> None:
        path = self._path.with_name(f"{self._path.name}.{begin:016d}")
        full, self._file = self._file, _open_part(path)
        self._begin = self.end = begin
        # A failure is made up for with the next part.
        with suppress(OSError):
            full.close()
        with suppress(OSError):
            for _, old in _parts(self._path)[:-MAX_PARTS]:
                old.unlink()


def end_of(path: Path) -> int:
    """Return the number of bytes written to a log so far, dropped ones included."""
    return _end(_parts(path))


def read(path: Path, after: int, max_bytes: int) -> tuple[int, bytes]:
    """Return (offset, bytes) of the first kept bytes of a log from byte ``after`` on."""
    return _read(_parts(path), after, max_bytes)


def read_leases(directory: Path, rank: int, after: int, max_bytes: int) -> tuple[bytes, int]:
    """Return a rank's output from byte ``after`` on, over all leases, and the next offset.

    Offsets count from the first byte of the first lease, dropped bytes included.
    """
    logs = _find(directory, rf"\d{{1,18}}\.{rank}\.log")
    text, base, at = b"", 0, after
    for name in sorted(logs, key=lambda name: int(name.partition(".")[0])):
        end = base + _end(logs[name])
        while (room := min(max_bytes - len(text), end - at)) > 0:
            begin, piece = _read(logs[name], at - base, room)
            if not piece:
                break
            text += piece
            at = base + begin + len(piece)
        base = end
    return text, at


def _read(parts: Parts, after: int, max_bytes: int) -> tuple[int, bytes]:
    for begin, path in parts:
        at = max(after, begin)
        # The part may have just been dropped, or be a job's link to a file of another user.
        with (
            suppress(FileNotFoundError, UnusableFileError),
            open(untrusted_file.open_owned(path), "rb") as file,
        ):
            file.seek(at - begin)
            if piece := file.read(max_bytes):
                return at, piece
    return after, b""


def _end(parts: Parts) -> int:
    if not parts:
        return 0
    begin, path = parts[-1]
    try:
        descriptor = untrusted_file.open_owned(path)
    except (FileNotFoundError, UnusableFileError):  # dropped, or not a log
        return begin
    try:
        return begin + os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _open_part(path: Path) -> BinaryIO:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    return open(untrusted_file.open_regular(path, flags), "ab", buffering=0)


def _parts(path: Path) -> Parts:
    return _find(path.parent, re.escape(path.name)).get(path.name, [])


def _find(directory: Path, names: str) -> dict[str, Parts]:
    """Return the parts of the logs whose names match."""
    wanted = re.compile(rf"({names})(?:\.(\d{{16}}))?")
    logs: dict[str, Parts] = defaultdict(list)
    with suppress(FileNotFoundError, NotADirectoryError):
        for entry in os.listdir(directory):
            if match := wanted.fullmatch(entry):
                logs[match[1]].append((int(match[2] or 0), directory / entry))
    return {name: sorted(parts) for name, parts in logs.items()}
