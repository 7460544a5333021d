"""Quarantine for damaged data: moved aside and named, so that everything else works.

``DATA/quarantine`` holds damaged files of the data directory and damaged documents of the
database, for an operator to inspect or remove.
"""

import os
import re
import time
from pathlib import Path

import structlog

from fairlead.atomic_file import replace_text

log = structlog.get_logger("fairlead.quarantine")

DIRECTORY = "quarantine"


def quarantine_file(data: Path, path: Path, reason: str) -> Path | None:
    """Move a damaged file, link or directory of the data directory aside; return its new path.

    Returns None, and leaves it, if it cannot be moved.
    """
    target = _target(data, os.path.relpath(path, data))
    try:
        path.rename(target)
    except OSError as error:
        log.error("file.damaged", path=str(path), reason=reason, unmoved=error.strerror)
        return None
    log.error("file.quarantined", path=str(path), reason=reason, moved_to=str(target))
    return target


def quarantine_text(data: Path, name: str, text: str, reason: str) -> Path:
    """Write a damaged document of the database to a file; return its path."""
    target = _target(data, name)
    replace_text(target, text, mode=0o600)
    log.error("document.quarantined", document=name, reason=reason, moved_to=str(target))
    return target


def quarantined(data: Path) -> list[Path]:
    """Return all that is in quarantine, the oldest first."""
    directory = data / DIRECTORY
    return sorted(directory.iterdir()) if directory.is_dir() else []


def _target(data: Path, name: str) -> Path:
    directory = data / DIRECTORY
    directory.mkdir(mode=0o700, exist_ok=True)
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[-150:]
    stem = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{plain}"
    number, target = 1, directory / stem
    while target.exists() or target.is_symlink():
        number += 1
        target = directory / f"{stem}.{number}"
    return target
