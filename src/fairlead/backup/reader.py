"""Reader of backup archives: every member is checked before anything is written.

An archive is input like any other: it may be damaged, or made to harm the machine it is restored
to. Members are regular files with safe names; their number and the disk space are checked.
"""

import hashlib
import json
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fairlead.backup.layout import CHECKSUMS, DATABASE, HEADER, Header, require_safe_name
from fairlead.model.errors import InputError

_CHUNK = 1 << 20
_MAX_HEADER_BYTES, _MAX_CHECKSUMS_BYTES = 1 << 20, 1 << 29
_DAMAGE = (tarfile.TarError, EOFError, zlib.error)
_FIX = "expected a complete file of `fairlead backup`"


@dataclass(frozen=True, slots=True)
class Member:
    """One file in an archive."""

    name: str
    size: int
    executable: bool
    owner: str
    """name of the user it belongs to; empty for the server's"""
    content: IO[bytes]


@dataclass(frozen=True, slots=True)
class Verified:
    """An archive whose checksums match."""

    header: Header
    checksums: dict[str, str]
    size: int
    """bytes of the files to restore"""


def verify(path: Path) -> Verified:
    """Read a whole archive; raise InputError unless it is complete and all checksums match."""
    header: Header | None = None
    expected: dict[str, str] | None = None
    actual: dict[str, tuple[str, int]] = {}
    with naming(path):
        for member in members(path):
            if header is None:
                header, actual[HEADER] = _header(member)
            elif expected is not None:
                raise InputError("members after the checksums", fix=_FIX)
            elif member.name == CHECKSUMS:
                expected = _checksums(member)
            else:
                actual[member.name] = _digest(member.content), member.size
        if header is None or expected is None:
            raise InputError("incomplete: the checksums at its end are missing", fix=_FIX)
        for name, digest in expected.items():
            if name not in actual or actual[name][0] != digest:
                raise InputError(f"{name}: the checksum does not match", fix=_FIX)
        if not {HEADER, DATABASE} <= expected.keys():
            raise InputError("no database", fix=_FIX)
        del expected[HEADER]
    return Verified(header, expected, sum(actual[name][1] for name in expected))


def members(path: Path) -> Iterator[Member]:
    """Yield the files of an archive in their order; raise InputError for anything else."""
    with path.open("rb") as file, tarfile.open(fileobj=file, mode="r|*") as tar:
        while (info := tar.next()) is not None:
            require_safe_name(info.name)
            if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or info.issparse():
                raise InputError(f"{info.name}: not a regular file", fix=_FIX)
            content = tar.extractfile(info)
            assert content is not None  # it is a regular file
            executable = bool(info.mode & 0o100)
            yield Member(info.name, info.size, executable, info.uname, content)
            # The list of earlier members would fill the memory.
            tar.members = []  # type: ignore[attr-defined]  # typeshed lacks this attribute


def _header(member: Member) -> tuple[Header, tuple[str, int]]:
    """Return the header, and its digest and size."""
    if member.name != HEADER or member.size > _MAX_HEADER_BYTES:
        raise InputError("not a backup", fix=_FIX)
    content = member.content.read()
    return Header.read(content), (hashlib.sha256(content).hexdigest(), len(content))


def _checksums(member: Member) -> dict[str, str]:
    if member.size > _MAX_CHECKSUMS_BYTES:
        raise InputError("too many members", fix=_FIX)
    try:
        listed = json.loads(member.content.read())["sha256"]
        return {require_safe_name(name).as_posix(): str(one) for name, one in listed.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InputError("damaged checksums", fix=_FIX) from None


def _digest(content: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while piece := content.read(_CHUNK):
        digest.update(piece)
    return digest.hexdigest()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the archive's name to errors, and report damage as an error of the input."""
    try:
        yield
    except InputError as error:
        raise InputError(error.problem, fix=error.fix, field=str(path)) from None
    except _DAMAGE as error:
        raise InputError(f"damaged ({error})", fix=_FIX, field=str(path)) from None
