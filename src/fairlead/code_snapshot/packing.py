"""Packing of a working directory into a code snapshot, on the submitter's machine."""

import hashlib
import os
import stat
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fairlead.code_snapshot.archive import MAX_FILES, Entry, header
from fairlead.model.errors import InputError

_SHOWN_FILES = 3
_GIT_TIMEOUT_S = 60.0
_SKIPPED = ("__pycache__",)
"""directories that are left out where Git does not tell what to leave out"""


@dataclass(frozen=True, slots=True)
class PackedCode:
    """A code snapshot, ready for its upload."""

    digest: str
    size: int
    commit: str = ""
    """Git commit of the directory; empty outside a Git checkout"""
    is_dirty: bool = False
    """whether the directory differs from the commit"""


def pack(directory: Path, file: IO[bytes], max_bytes: int) -> PackedCode:
    """Write the snapshot of a directory to a file; InputError if it is too large."""
    entries = list(_entries(directory, max_bytes))
    digest, size = hashlib.sha256(), 0
    for piece in _pieces(directory, entries):
        file.write(piece)
        digest.update(piece)
        size += len(piece)
    if size > max_bytes:
        raise _too_large(directory, entries, max_bytes)
    file.flush()
    commit, is_dirty = _commit(directory)
    return PackedCode(digest.hexdigest(), size, commit, is_dirty)


def _entries(directory: Path, max_bytes: int) -> Iterator[Entry]:
    names = _git_files(directory)
    listed: list[Entry] = []
    total = 0
    for name in sorted(_walk(directory) if names is None else names):
        entry = _entry(directory, name)
        if entry is None:
            continue
        listed.append(entry)
        total += entry.size
    if not listed:
        fix = "expected a directory with code that Git does not ignore"
        raise InputError(f"no files in {directory}", fix=fix, field="snapshot")
    if total > max_bytes:
        raise _too_large(directory, listed, max_bytes)
    if len(listed) > MAX_FILES:
        problem = f"{len(listed):,} files in {directory}"
        raise InputError(problem, fix=f"expected at most {MAX_FILES:,}", field="snapshot")
    yield from listed


def _entry(directory: Path, name: str) -> Entry | None:
    """Return the entry of a file or link; None for others, and for deleted ones."""
    path = directory / name
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        return Entry(name, "l", target=os.readlink(path))
    if not stat.S_ISREG(status.st_mode):
        return None
    return Entry(name, "x" if status.st_mode & stat.S_IXUSR else "f", size=status.st_size)


def _pieces(directory: Path, entries: Sequence[Entry]) -> Iterator[bytes]:
    yield header(entries)
    for entry in entries:
        if entry.kind == "l":
            continue
        content = (directory / entry.path).read_bytes()
        if len(content) != entry.size:
            problem = f"{entry.path} changed while it was read"
            raise InputError(problem, fix="submit again", field="snapshot")
        yield content


def _walk(directory: Path) -> Iterator[str]:
    for root, directories, names in os.walk(directory):
        here = Path(root).relative_to(directory)
        for name in [*names, *(d for d in directories if os.path.islink(os.path.join(root, d)))]:
            yield (here / name).as_posix()
        directories[:] = [name for name in directories if name not in _SKIPPED]


def _git_files(directory: Path) -> list[str] | None:
    """Return tracked and untracked files that Git does not ignore; None outside a checkout."""
    output = _git(directory, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if output is None:
        return None
    names: set[str] = set()
    for name in filter(None, output.split(b"\0")):
        text = os.fsdecode(name).rstrip("/")
        inner = directory / text
        if inner.is_dir() and not inner.is_symlink():  # a submodule
            names.update(f"{text}/{below}" for below in _git_files(inner) or _walk(inner))
        else:
            names.add(text)
    return list(names)


def _commit(directory: Path) -> tuple[str, bool]:
    commit = _git(directory, "rev-parse", "--verify", "--quiet", "HEAD")
    if not commit:
        return "", False
    changes = _git(directory, "status", "--porcelain", "-z", "--", ".")
    return commit.decode("ascii").strip(), bool(changes)


def _git(directory: Path, *arguments: str) -> bytes | None:
    """Return the output of a Git command; None if it fails or there is no Git."""
    command = ["git", "-C", str(directory), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=_GIT_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _too_large(directory: Path, entries: Sequence[Entry], max_bytes: int) -> InputError:
    largest = sorted(entries, key=lambda entry: entry.size, reverse=True)[:_SHOWN_FILES]
    listed = ", ".join(f"{entry.path} ({_mib(entry.size)})" for entry in largest)
    total = sum(entry.size for entry in entries)
    return InputError(
        f"{directory} has {_mib(total)}, more than the server's limit of {_mib(max_bytes)};"
        f" largest: {listed}",
        fix="expected code only: list data and results in .gitignore, or use --directory",
        field="snapshot",
    )


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
