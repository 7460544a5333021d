"""Copies the committed checkpoint of a job to a job that has not started.

The source belongs to the tenant, the copy to the server: the engine gives its directory to the
tenant at the first launch, as it does with an empty one. So the server writes nothing where a
tenant could have put a link.
"""

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from fairlead.atomic_file import fsync_directory, replace_file, replacement
from fairlead.committed_files import OpenCheckpoint, open_committed, open_directory
from fairlead.job import checkpoint
from fairlead.untrusted_file import UnusableFileError

_FIRST_LEASE = 0
"""lease that a copied checkpoint names: it comes before every lease of its new job"""


class NoCheckpointError(Exception):
    """The source has no usable checkpoint."""


def copy_checkpoint(source: Path, target: Path) -> float:
    """Copy the committed checkpoint of a job and return its steps.

    The target appears complete or not at all, and stays as it is if it exists. Raises
    NoCheckpointError if the source has none, or a damaged one, OSError if it cannot be written.
    """
    if not target.is_dir():
        with suppress(FileNotFoundError):
            shutil.rmtree(_aside(target))
        _aside(target).mkdir(parents=True, mode=0o700)
        try:
            with open_directory(source) as directory, open_committed(directory) as opened:
                if opened is None:
                    raise NoCheckpointError("it has not saved one")
                _copy(opened, _aside(target))
        except (FileNotFoundError, NotADirectoryError):
            raise NoCheckpointError("it has not saved one") from None
        except UnusableFileError as error:
            raise NoCheckpointError(str(error)) from None
        _aside(target).rename(target)
        fsync_directory(str(target.parent))
    return checkpoint.saved_steps(str(target)) or 0.0


def _aside(target: Path) -> Path:
    return target.with_name(f"{target.name}.incoming")


def _copy(opened: OpenCheckpoint, target: Path) -> None:
    """Copy the files of a checkpoint under the names of the first lease."""
    steps = opened.committed.steps
    renamed = {name: f"{_FIRST_LEASE}-{steps}.{i}.ckpt" for i, name in enumerate(opened.files)}
    for name, file in opened.files.items():
        _copy_file(file, target / renamed[name])
        if not checkpoint.is_intact(str(target / renamed[name])):
            raise UnusableFileError(f"{name} is damaged: its checksum does not match")
    files = tuple(renamed[name] for name in opened.committed.files)
    latest = opened.committed._replace(lease=_FIRST_LEASE, files=files)
    replace_file(target / "latest.json", json.dumps(latest._asdict()).encode())


def _copy_file(source: BinaryIO, target: Path) -> None:
    """Copy at most the present size: the job may append to the file."""
    left = os.fstat(source.fileno()).st_size
    with replacement(target, mode=0o600, sync_directory=False) as file:
        while left > 0 and (chunk := source.read(min(left, 1 << 20))):
            file.write(chunk)
            left -= len(chunk)
