"""A job's output on disk, in at most a few files of bounded size."""

from pathlib import Path
from typing import BinaryIO

MOST_BYTES = 32 << 20
KEPT = 3


class LogFile:
    """Appends to a file; when that grows too large it becomes ``.1``, the ones before ``.2`` …"""

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self._path = path
        self._most = most_bytes
        self._file: BinaryIO = path.open("ab", buffering=0)
        self._size = path.stat().st_size

    def write(self, chunk: bytes) -> None:
        """Append; a full disk loses output, never the job."""
        try:
            if self._size + len(chunk) > self._most and self._size:
                self._rotate()
            self._file.write(chunk)
            self._size += len(chunk)
        except OSError:
            return

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _rotate(self) -> None:
        self._file.close()
        for number in range(KEPT - 1, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            if older.exists():
                older.replace(self._path.with_name(f"{self._path.name}.{number + 1}"))
        self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        self._file = self._path.open("ab", buffering=0)
        self._size = 0
