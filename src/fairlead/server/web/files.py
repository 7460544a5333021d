"""The files of the web pages, compressed once and identified by their hashes."""

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

STATIC = Path(__file__).with_name("static")
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""suffix → media type; other files are not served"""


@dataclass(frozen=True, slots=True)
class StaticFile:
    """Content of a file, as it is and compressed."""

    body: bytes
    compressed: bytes
    media_type: str
    etag: str


@cache
def static_files() -> Mapping[str, StaticFile]:
    """Return path → file of all files that browsers may load."""
    return {
        path.relative_to(STATIC).as_posix(): _read(path)
        for path in sorted(STATIC.rglob("*"))
        if path.suffix in MEDIA_TYPES
    }


def _read(path: Path) -> StaticFile:
    body = path.read_bytes()
    return StaticFile(
        body,
        gzip.compress(body, mtime=0),
        MEDIA_TYPES[path.suffix],
        f'"{hashlib.sha256(body).hexdigest()[:32]}"',
    )
