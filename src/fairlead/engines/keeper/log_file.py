"""What a job's processes print, on disk, in at most a few files of bounded size each.

A process's log is a row of parts: ``LEASE.RANK.log``, then ``LEASE.RANK.log.OFFSET``, each named
after the byte of the log at which it begins. Parts are never renamed and only the oldest are
removed, so that a byte keeps its offset whatever was dropped before it, and whoever is killed
while writing or reading leaves nothing to repair. ``cat LEASE.RANK.log*`` shows all that is kept.
"""

import os
import re
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

MAX_PART_BYTES = 32 << 20
"""of a part"""
MAX_PARTS = 4
"""of a log, with the one that is written to"""

Parts = list[tuple[int, Path]]
"""(the byte at which it begins, file), oldest first"""


class LogFile:
    """Appends to a log; when a part is full another one begins, and the oldest goes."""

    def __init__(self, path: Path, most_bytes: int = MAX_PART_BYTES) -> None:
        self._path = path
        self._most = most_bytes
        self._begin, newest = (_parts(path) or [(0, path)])[-1]
        self._file: BinaryIO = newest.open("ab", buffering=0)
        self.end = self._begin + newest.stat().st_size
        """how many bytes the log has had so far, with those that were dropped"""

    def write(self, chunk: bytes, at: int | None = None) -> None:
        """Append; a full disk loses output, never the job.

        A copy of a log leaves out what it could not get: ``at`` says where the chunk belongs.
        """
        begin = self.end if at is None else at
        used = self.end - self._begin
        try:
            if begin > self.end or (used and used + len(chunk) > self._most):
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
        full, self._file = self._file, path.open("ab", buffering=0)
        self._begin = self.end = begin
        # What fails here is tried again with the next part.
        with suppress(OSError):
            full.close()
        with suppress(OSError):
            for _, old in _parts(self._path)[:-MAX_PARTS]:
                old.unlink()


def end_of(path: Path) -> int:
    """Return how many bytes a log has had so far, with those that were dropped."""
    return _end(_parts(path))


def read(path: Path, after: int, most: int) -> tuple[int, bytes]:
    """Return the first bytes of a log that are kept from byte ``after`` on, and where they are."""
    return _read(_parts(path), after, most)


def read_leases(directory: Path, rank: int, after: int, most: int) -> tuple[bytes, int]:
    """Return what a rank's logs hold from byte ``after`` of them all on, and where to go on.

    Bytes count from the first of the first lease; those that were dropped count and are left out.
    """
    logs = _find(directory, rf"\d+\.{rank}\.log")
    text, base, at = b"", 0, after
    for name in sorted(logs, key=lambda name: int(name.partition(".")[0])):
        end = base + _end(logs[name])
        while (room := min(most - len(text), end - at)) > 0:
            begin, piece = _read(logs[name], at - base, room)
            if not piece:
                break
            text += piece
            at = base + begin + len(piece)
        base = end
    return text, at


def _read(parts: Parts, after: int, most: int) -> tuple[int, bytes]:
    for begin, path in parts:
        at = max(after, begin)
        with suppress(FileNotFoundError), path.open("rb") as file:  # it may just be dropped
            file.seek(at - begin)
            if piece := file.read(most):
                return at, piece
    return after, b""


def _end(parts: Parts) -> int:
    if not parts:
        return 0
    begin, path = parts[-1]
    try:
        return begin + path.stat().st_size
    except FileNotFoundError:  # it was just dropped
        return begin


def _parts(path: Path) -> Parts:
    return _find(path.parent, re.escape(path.name)).get(path.name, [])


def _find(directory: Path, names: str) -> dict[str, Parts]:
    """Return the parts of the logs whose names match."""
    wanted = re.compile(rf"({names})(?:\.(\d{{16}}))?")
    found: dict[str, Parts] = defaultdict(list)
    with suppress(FileNotFoundError):
        for entry in os.listdir(directory):
            if match := wanted.fullmatch(entry):
                found[match[1]].append((int(match[2] or 0), directory / entry))
    return {name: sorted(parts) for name, parts in found.items()}
