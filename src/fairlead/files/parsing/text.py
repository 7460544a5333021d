"""Text files, gzipped or not: every fault is one InputError that names the file."""

import gzip
import io
import zlib
from dataclasses import dataclass
from pathlib import Path

from fairlead.model.errors import InputError

# Ten times the largest known trace; a small gzip file can unpack to far more.
MAX_BYTES = 1 << 29
_MAX_RATIO, _MIN_RATIO_BYTES = 200, 1 << 24
"""largest ratio of a gzip file, from this unpacked size on: traces shrink by 10 to 30"""
MAX_LINE = 100_000
_GZIP = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class SourceText:
    """The content of a file, with newlines at line ends, and its name for errors."""

    name: str
    body: str

    def check_lines(self) -> None:
        """Raise InputError if a line is too long for a row."""
        if len(self.body) <= MAX_LINE:
            return
        for number, line in enumerate(self.body.split("\n"), start=1):
            if len(line) > MAX_LINE:
                raise InputError(
                    f"{len(line):,} characters in a line",
                    fix=f"expected one row per line, at most {MAX_LINE:,} characters",
                    source=self.name,
                    line=number,
                )


def read_text(path: str | Path) -> SourceText:
    """Return the text of a UTF-8 file, gzipped or not, with or without a byte-order mark."""
    name = shorten(str(path))
    return decode(read_bytes(path), name)


def read_bytes(path: str | Path) -> bytes:
    """Return the bytes of a file, unpacked if they are gzipped."""
    name = shorten(str(path))
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise InputError("is a directory", fix="expected a file", source=name) from None
    except FileNotFoundError:
        raise InputError("no such file", fix="check the path", source=name) from None
    except OSError as error:
        raise InputError(
            f"cannot be read ({error.strerror or error})",
            fix="check the path and its permissions",
            source=name,
        ) from None
    except ValueError:  # a NUL byte in the path
        raise InputError("not a path", fix="check the path", source=name) from None
    if data.startswith(_GZIP):
        data = _unpacked(data, name)
    if len(data) > MAX_BYTES:
        raise InputError(f"more than {MAX_BYTES >> 20} MiB", fix="split the file", source=name)
    return data


def _unpacked(data: bytes, name: str) -> bytes:
    unpacker = gzip.GzipFile(fileobj=io.BytesIO(data))
    limit = min(MAX_BYTES, max(_MIN_RATIO_BYTES, _MAX_RATIO * len(data)))
    try:
        unpacked = unpacker.read(limit + 1)
    except EOFError:
        raise InputError(
            "truncated gzip data", fix="copy or download the file again", source=name
        ) from None
    except (OSError, zlib.error):
        raise InputError(
            "damaged gzip data", fix="copy or download the file again", source=name
        ) from None
    if limit < MAX_BYTES and len(unpacked) > limit:
        raise InputError(
            f"gzip data that unpack to more than {_MAX_RATIO} times their size",
            fix=f"expected at most {limit >> 20} MiB for this file; unpack it if it is genuine",
            source=name,
        )
    return unpacked


def decode(data: bytes, name: str) -> SourceText:
    """Return bytes as text, with the line ends of any system as newlines."""
    if data.startswith(_UTF16):
        raise InputError("UTF-16", fix="save the file as UTF-8", source=name)
    if b"\0" in data:
        raise InputError("binary data", fix="expected a text file", source=name)
    try:
        body = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"not UTF-8: byte 0x{data[error.start]:02x}",
            fix="save the file as UTF-8",
            source=name,
            line=data.count(b"\n", 0, error.start) + 1,
        ) from None
    if not body.strip():
        raise InputError("empty", fix="expected a file with data", source=name)
    return SourceText(name, body.replace("\r\n", "\n").replace("\r", "\n"))


def write_text(path: str | Path, body: str) -> None:
    """Write text as UTF-8, gzipped if the name ends in .gz; equal texts give equal bytes."""
    data = body.encode()
    if str(path).endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    try:
        Path(path).write_bytes(data)
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot be written ({getattr(error, 'strerror', None) or error})",
            fix="check the folder and its permissions",
            source=shorten(str(path)),
        ) from None


def shorten(text: str, limit: int = 80) -> str:
    """Return text on one printable line of at most ``limit`` characters, cut in the middle."""
    flat = "".join(c if c.isprintable() else "·" for c in text[: 4 * limit])
    if len(text) <= limit:
        return flat
    head = limit // 2
    tail = "".join(c if c.isprintable() else "·" for c in text[-(limit - head - 1) :])
    return f"{flat[:head]}…{tail}"
