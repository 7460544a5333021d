"""Writer of backup archives: complete and private, or not there at all."""

import hashlib
import io
import json
import os
import tarfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal

from fairlead.atomic_file import fsync_directory
from fairlead.backup.layout import CHECKSUMS

_COMPRESSED = (".gz", ".tgz")

Copied = Literal["same", "changed", "short"]
"""``changed``: the file was written to meanwhile; ``short``: it lost bytes, and does not count"""


class ArchiveWriter:
    """Writes an archive beside its destination; ``commit`` gives it its name.

    Leaving the context without a commit removes the archive.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        with suppress(FileNotFoundError):
            self._temporary.unlink()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        # Leaving the context closes it.
        self._file = open(os.open(self._temporary, flags, 0o600), "wb")  # noqa: SIM115
        mode: Literal["w|gz", "w|"] = "w|gz" if path.suffix in _COMPRESSED else "w|"
        self._tar = tarfile.open(  # noqa: SIM115
            fileobj=self._file, mode=mode, format=tarfile.PAX_FORMAT
        )
        self._checksums: dict[str, str] = {}
        self.size = 0
        """bytes of all members"""

    def __enter__(self) -> "ArchiveWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._file.closed:
            for opened in (self._tar, self._file):
                with suppress(OSError):  # the disk is full: the archive is removed anyway
                    opened.close()
        with suppress(FileNotFoundError):
            self._temporary.unlink()

    def add_bytes(self, name: str, content: bytes, *, owner: str = "") -> None:
        """Add a member with this content."""
        info = tarfile.TarInfo(name)
        info.mode, info.uname = 0o600, owner
        self._add(info, io.BytesIO(content), len(content))

    def add_file(self, name: str, file: BinaryIO, *, owner: str = "") -> Copied:
        """Add a copy of an open file; a later copy under the same name replaces it."""
        before = os.fstat(file.fileno())
        info = tarfile.TarInfo(name)
        info.mode, info.mtime, info.uname = before.st_mode & 0o700, int(before.st_mtime), owner
        if not self._add(info, file, before.st_size):
            return "short"
        after = os.fstat(file.fileno())
        unchanged = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
        return "same" if unchanged else "changed"

    def _add(self, info: tarfile.TarInfo, file: BinaryIO, size: int) -> bool:
        """Add a member; return False, and do not count it, if the file ends early."""
        info.size = size
        content = _Measured(file, size)
        self._tar.addfile(info, content)
        self.size += size
        if content.short:
            self._checksums.pop(info.name, None)
        else:
            self._checksums[info.name] = content.digest
        return not content.short

    def commit(self) -> None:
        """Complete the archive and give it its name, durably."""
        text = json.dumps({"sha256": self._checksums}, indent=0)
        self.add_bytes(CHECKSUMS, text.encode())
        self._tar.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._temporary, self._path)
        fsync_directory(str(self._path.parent))


class _Measured:
    """Reads exactly ``size`` bytes of a file, zeros beyond its end, and computes their digest."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._left = file, size
        self._hash = hashlib.sha256()
        self.short = False
        """the file ended early"""

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def read(self, count: int = -1) -> bytes:
        wanted = self._left if count < 0 else min(count, self._left)
        piece = b"" if self.short else self._file.read(wanted)
        if len(piece) < wanted:
            self.short = True
            piece += bytes(wanted - len(piece))
        self._left -= wanted
        self._hash.update(piece)
        return piece
