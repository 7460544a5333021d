"""Format of a code snapshot: a line that names it, a line of JSON with its files, their contents.

The second line is a list of entries ``[path, kind, value]`` in the order of the contents. Kinds
are ``f`` (file) and ``x`` (executable file), both with their size, and ``l`` (link) with its
target. Equal directories give equal snapshots, whose SHA-256 is their id. A snapshot comes from a
tenant: its reader trusts nothing, and has no more to check than these two lines.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from io import BufferedReader
from typing import Any

from fairlead.untrusted_file import UnusableFileError

MAX_FILES = 50_000
_MAGIC = b"fairlead-code 1\n"
_MAX_HEADER_BYTES = 16 << 20
_MAX_PATH, _MAX_DEPTH = 1024, 64


@dataclass(frozen=True, slots=True)
class Entry:
    """One file or link of a snapshot."""

    path: str
    """relative, with slashes"""
    kind: str
    size: int = 0
    target: str = ""
    """target of a link"""


def header(entries: Iterable[Entry]) -> bytes:
    """Return the first two lines of a snapshot."""
    rows = [[e.path, e.kind, e.target if e.kind == "l" else e.size] for e in entries]
    return _MAGIC + json.dumps(rows, separators=(",", ":")).encode() + b"\n"


def read_header(file: BufferedReader) -> list[Entry]:
    """Return the files of a snapshot, whose contents follow; UnusableFileError if it is none."""
    if file.readline(len(_MAGIC)) != _MAGIC:
        raise _error("it does not begin as one")
    line = file.readline(_MAX_HEADER_BYTES)
    try:
        rows = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        rows = None
    if not isinstance(rows, list) or len(rows) > MAX_FILES:
        raise _error(f"expected a list of at most {MAX_FILES:,} files")
    entries = [_entry(row) for row in rows]
    _require_distinct(entries)
    return entries


def verify(file: BufferedReader, digest: str) -> None:
    """Raise UnusableFileError unless a file is the snapshot with this id."""
    if hashlib.file_digest(file, "sha256").hexdigest() != digest:
        raise _error("its SHA-256 is not its id")
    length = file.tell()
    file.seek(0)
    entries = read_header(file)
    if file.tell() + sum(entry.size for entry in entries) != length:
        raise _error("the sizes of its files do not add up to its length")


def _entry(row: Any) -> Entry:
    if not (isinstance(row, list) and len(row) == 3 and isinstance(row[0], str)):
        raise _error("expected entries of path, kind and size")
    path, kind, value = row
    parts = path.split("/")
    is_path = len(path.encode(errors="replace")) <= _MAX_PATH and len(parts) <= _MAX_DEPTH
    if not is_path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise _error(f"bad path {path[:100]!r}")
    if (
        kind == "l"
        and isinstance(value, str)
        and 0 < len(value) <= _MAX_PATH
        and "\0" not in value
    ):
        return Entry(path, kind, target=value)
    if kind in ("f", "x") and type(value) is int and 0 <= value < 1 << 50:
        return Entry(path, kind, size=value)
    raise _error(f"bad entry of {path[:100]!r}")


def _require_distinct(entries: Iterable[Entry]) -> None:
    """Raise UnusableFileError if a path occurs twice, or a file is also a directory."""
    paths: set[str] = set()
    directories: set[str] = set()
    for entry in entries:
        if entry.path in paths:
            raise _error(f"{entry.path[:100]!r} occurs twice")
        paths.add(entry.path)
        parent = entry.path.rpartition("/")[0]
        while parent and parent not in directories:
            directories.add(parent)
            parent = parent.rpartition("/")[0]
    if both := sorted(paths & directories):
        raise _error(f"{both[0][:100]!r} is a file and a directory")


def _error(problem: str) -> UnusableFileError:
    return UnusableFileError(f"not a code snapshot: {problem}")
