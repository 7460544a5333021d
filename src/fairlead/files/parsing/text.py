"""Bytes of a file as text and back: every fault is one InputError that names the file."""

import gzip
import io
import zlib
from dataclasses import dataclass
from pathlib import Path

from fairlead.model.errors import InputError

# Above any trace we know of by a factor of ten; a small gzip file can unpack to far more.
MAX_BYTES = 1 << 29
MAX_LINE = 100_000
_GZIP = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Text:
    """What a file holds, lines ended by a newline, with the name that errors give it."""

    name: str
    body: str

    def check_lines(self) -> None:
        """Raise InputError if a line is too long to be a row of anything."""
        if len(self.body) <= MAX_LINE:
            return
        for number, line in enumerate(self.body.split("\n"), start=1):
            if len(line) > MAX_LINE:
                raise InputError(
                    f"the line has {len(line):,} characters",
                    fix=f"write one row a line, at most {MAX_LINE:,} characters each",
                    source=self.name,
                    line=number,
                )


def read_text(path: str | Path) -> Text:
    """Return the text of a UTF-8 file, gzipped or not, with or without a byte-order mark."""
    name = shortened(str(path))
    return decode(read_bytes(path), name)


def read_bytes(path: str | Path) -> bytes:
    """Return the bytes of a file, unpacked if they are gzipped."""
    name = shortened(str(path))
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise InputError("it is a directory", fix="give a file", source=name) from None
    except FileNotFoundError:
        raise InputError("there is no such file", fix="check the path", source=name) from None
    except OSError as error:
        raise InputError(
            f"it cannot be read ({error.strerror or error})",
            fix="check the path and its permissions",
            source=name,
        ) from None
    except ValueError:  # a NUL byte in the path
        raise InputError("it is not a path", fix="check the path", source=name) from None
    if data.startswith(_GZIP):
        data = _unpacked(data, name)
    if len(data) > MAX_BYTES:
        raise InputError(f"it holds more than {MAX_BYTES >> 20} MiB", fix="split it", source=name)
    return data


def _unpacked(data: bytes, name: str) -> bytes:
    unpacker = gzip.GzipFile(fileobj=io.BytesIO(data))
    try:
        return unpacker.read(MAX_BYTES + 1)
    except EOFError:
        raise InputError(
            "the gzip data end early", fix="copy or download the file again", source=name
        ) from None
    except (OSError, zlib.error):
        raise InputError(
            "the gzip data are damaged", fix="copy or download the file again", source=name
        ) from None


def decode(data: bytes, name: str) -> Text:
    """Return bytes as text, lines ended by a newline whatever system wrote them."""
    if data.startswith(_UTF16):
        raise InputError("it is UTF-16", fix="save it as UTF-8", source=name)
    if b"\0" in data:
        raise InputError("it is binary, not text", fix="give a text file", source=name)
    try:
        body = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"byte 0x{data[error.start]:02x} is not UTF-8",
            fix="save the file as UTF-8",
            source=name,
            line=data.count(b"\n", 0, error.start) + 1,
        ) from None
    if not body.strip():
        raise InputError("it is empty", fix="give a file with data", source=name)
    return Text(name, body.replace("\r\n", "\n").replace("\r", "\n"))


def write_text(path: str | Path, body: str) -> None:
    """Write text as UTF-8, gzipped when the name ends in .gz; the same text, the same bytes."""
    data = body.encode()
    if str(path).endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    try:
        Path(path).write_bytes(data)
    except (OSError, ValueError) as error:
        raise InputError(
            f"it cannot be written ({getattr(error, 'strerror', None) or error})",
            fix="check the folder and its permissions",
            source=shortened(str(path)),
        ) from None


def shortened(text: str, limit: int = 80) -> str:
    """Return text on one printable line of at most ``limit`` characters, cut in the middle."""
    flat = "".join(c if c.isprintable() else "·" for c in text[: 4 * limit])
    if len(text) <= limit:
        return flat
    head = limit // 2
    tail = "".join(c if c.isprintable() else "·" for c in text[-(limit - head - 1) :])
    return f"{flat[:head]}…{tail}"
