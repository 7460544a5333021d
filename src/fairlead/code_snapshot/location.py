"""Places of code snapshots in a data directory, and the removal of unused ones."""

import hashlib
import os
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fairlead import untrusted_file

ROOT = "code-snapshots"
SUFFIX, PART_SUFFIX = ".code", ".part"
UNUSED_S = 3600.0
"""seconds for which an uploaded snapshot waits for its job"""


@dataclass(frozen=True, slots=True)
class SnapshotLimits:
    """Sizes of snapshots."""

    max_bytes: int = 100 << 20
    quota_bytes: int = 1 << 30
    """bytes of all snapshots of a tenant"""


def tenant_dir(data: Path, tenant: str) -> Path:
    """Return the directory of a tenant's snapshots; tenants may have any name."""
    return data / ROOT / hashlib.sha256(tenant.encode()).hexdigest()[:32]


def snapshot_path(data: Path, tenant: str, digest: str) -> Path:
    """Return the file of a tenant's snapshot."""
    return tenant_dir(data, tenant) / f"{digest}{SUFFIX}"


def code_dir(job_dir: Path) -> Path:
    """Return the working directory of a job with a snapshot."""
    return job_dir / "code"


def remove_code(job_dir: Path) -> None:
    """Remove the unpacked code of a job that has ended."""
    with suppress(FileNotFoundError):
        untrusted_file.remove_tree(code_dir(job_dir))


def remove_unused(data: Path, tenant: str, used: Collection[str]) -> None:
    """Remove a tenant's snapshots that no job uses, except those uploaded a short time ago."""
    for path in files(data, tenant):
        with suppress(FileNotFoundError):
            age_s = time.time() - path.stat().st_mtime
            if path.stem not in used and age_s > UNUSED_S:
                path.unlink()


def used_bytes(data: Path, tenant: str) -> int:
    """Return the size of all snapshots of a tenant, with those that are being uploaded."""
    total = 0
    for path in files(data, tenant):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def files(data: Path, tenant: str) -> Iterator[Path]:
    """Yield the files of a tenant's snapshots, the oldest first."""
    home = tenant_dir(data, tenant)
    entries = []
    with suppress(FileNotFoundError), os.scandir(home) as scanned:
        for entry in scanned:
            with suppress(FileNotFoundError):
                entries.append((entry.stat(follow_symlinks=False).st_mtime, entry.name))
    for _, name in sorted(entries):
        yield home / name
