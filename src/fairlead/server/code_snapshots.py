"""Code snapshots that tenants have uploaded: received in parts, bounded by a size and a quota."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fairlead.atomic_file import fsync_directory
from fairlead.code_snapshot import archive, location
from fairlead.code_snapshot.location import SnapshotLimits
from fairlead.live.driver import Live
from fairlead.model.errors import InputError
from fairlead.untrusted_file import UnusableFileError, open_regular

_UPLOAD = "expected an uploaded snapshot: use `fairlead submit --snapshot`"


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """A part of a snapshot that is being uploaded."""

    digest: str
    offset: int
    size: int
    """bytes of the whole snapshot"""
    content: bytes


@dataclass(frozen=True, slots=True)
class CodeSnapshots:
    """The snapshots of one server; the methods block and run in threads."""

    live: Live
    limits: SnapshotLimits

    def require(self, tenant: str, digest: str) -> None:
        """Raise InputError unless a tenant has uploaded a snapshot; keep it for a job."""
        if not self.has(tenant, digest):
            problem = f"tenant {tenant} has no code snapshot {digest[:12]}"
            raise InputError(problem, fix=_UPLOAD, field="code_snapshot")

    def has(self, tenant: str, digest: str) -> bool:
        """Return whether a tenant has uploaded a snapshot; keep it for a job."""
        try:
            os.utime(location.snapshot_path(self._data, tenant, digest))
        except FileNotFoundError:
            return False
        return True

    def used_bytes(self, tenant: str) -> int:
        """Return the size of all snapshots of a tenant."""
        return location.used_bytes(self._data, tenant)

    def receive(self, tenant: str, part: SnapshotPart) -> bool:
        """Store a part; return whether the snapshot is complete.

        Parts arrive in order. The same part may arrive again: equal ids have equal contents.
        """
        if self.has(tenant, part.digest):
            return True
        self._check_size(part)
        target = location.snapshot_path(self._data, tenant, part.digest)
        path = target.with_suffix(location.PART_SUFFIX)
        self._make_room(tenant, part, path)
        for directory in (target.parent.parent, target.parent):
            directory.mkdir(exist_ok=True, mode=0o700)
        length = _write(path, part)
        if length < part.size:
            return False
        _complete(path, target, part.digest)
        return True

    @property
    def _data(self) -> Path:
        return self.live.config.data

    def _check_size(self, part: SnapshotPart) -> None:
        if part.size > self.limits.max_bytes:
            problem = f"code snapshot of {part.size:,} bytes"
            fix = f"expected at most {self.limits.max_bytes:,}, or a larger --snapshot-limit"
            raise InputError(problem, fix=fix, field="size")
        if part.offset + len(part.content) > part.size:
            raise InputError("beyond its size", fix="expected the size's bytes", field="offset")

    def _make_room(self, tenant: str, part: SnapshotPart, path: Path) -> None:
        """Remove snapshots of ended jobs if the quota is used up; InputError if it still is."""
        room = self.limits.quota_bytes - part.size
        with suppress(FileNotFoundError):
            room += path.stat().st_size  # its own bytes do not count twice
        if self.used_bytes(tenant) <= room:
            return
        location.remove_unused(self._data, tenant, self._needed(tenant))
        used = self.used_bytes(tenant)
        if used > room:
            mib = 1 << 20
            raise InputError(
                f"code snapshots of tenant {tenant} use {used / mib:.1f} of"
                f" {self.limits.quota_bytes / mib:g} MiB",
                fix="expected less: wait for jobs to end, cancel some, or ask for a larger"
                " --snapshot-quota",
                field="size",
            )

    def _needed(self, tenant: str) -> set[str]:
        """Return the snapshots of a tenant's jobs that have not ended."""
        queries, specs = self.live.queries, self.live.specs
        return {
            spec.code_snapshot
            for spec in tuple(specs.values())
            if spec.tenant == tenant and spec.code_snapshot
            if not queries.has_ended(queries.job_number(spec.id))
        }


def _write(path: Path, part: SnapshotPart) -> int:
    """Write a part of a snapshot; return its length so far."""
    descriptor = open_regular(path, os.O_RDWR | os.O_CREAT, 0o600)
    with open(descriptor, "r+b") as file:
        length = file.seek(0, os.SEEK_END)
        if part.offset > length:
            fix = f"expected the part from byte {length} on"
            raise InputError(f"part from byte {part.offset} on", fix=fix, field="offset")
        file.seek(part.offset)
        file.write(part.content)
        return max(length, part.offset + len(part.content))


def _complete(path: Path, target: Path, digest: str) -> None:
    """Give a snapshot its name if it is one; remove it otherwise."""
    try:
        with path.open("rb") as file:
            archive.verify(file, digest)
            os.fsync(file.fileno())
    except UnusableFileError as error:
        path.unlink(missing_ok=True)
        raise InputError(str(error), fix=_UPLOAD, field="code_snapshot") from None
    path.replace(target)
    fsync_directory(str(target.parent))
