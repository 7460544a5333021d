"""The checkpoint that a job's ``latest.json`` names."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeGuard

from fairlead.untrusted_file import UnusableFileError

_FILE_NAME = re.compile(r"\d{1,18}-\d{1,18}\.\d{1,9}\.ckpt")
"""name of a rank's file of a checkpoint; leads out of no directory"""
_MAX_NUMBER = 1 << 53


class CommittedCheckpoint(NamedTuple):
    """The checkpoint that ``latest.json`` names."""

    lease: int
    steps: int
    files: tuple[str, ...]
    """ranks → file name; of averaged copies, the file of each, most steps first"""
    weights: tuple[int, ...] = ()
    """files → steps of the copy: the state is their weighted average; empty: files are ranks"""
    positions: tuple[int, ...] = ()
    """files → items that a copy was past; empty: as many as steps"""

    @property
    def ranks(self) -> int:
        """The size of the gang that wrote it."""
        return 1 if self.weights else len(self.files)

    @property
    def position(self) -> tuple[int, int] | None:
        """The file whose position is the last one within the steps, and its items.

        None if all copies were past more items than the steps that all of them have made.
        """
        if not self.positions:
            return 0, self.steps
        within = [(p, -i) for i, p in enumerate(self.positions) if p <= self.steps]
        if not within:
            return None
        items, index = max(within)
        return -index, items

    @property
    def items_behind(self) -> int:
        """The items by which that position is behind the steps; 0 without one."""
        return 0 if self.position is None else self.steps - self.position[1]


def parse_committed(path: str, content: Mapping[str, Any]) -> CommittedCheckpoint:
    """Return the checkpoint in the content of a file.

    Raises UnusableFileError if the job has damaged it.
    """
    lease, steps, files = (content.get(name) for name in ("lease", "steps", "files"))
    if not (_is_count(lease) and _is_count(steps)):
        raise UnusableFileError(f"{path}: lease and steps: expected whole numbers")
    if not isinstance(files, list) or not files or not all(map(_is_file_name, files)):
        raise UnusableFileError(f"{path}: files: expected names LEASE-STEPS.RANK.ckpt")
    weights = content.get("weights", [])
    if not isinstance(weights, list) or not all(_is_count(weight) for weight in weights):
        raise UnusableFileError(f"{path}: weights: expected whole numbers")
    if weights and (len(weights) != len(files) or not any(weights)):
        raise UnusableFileError(f"{path}: weights: expected the steps of each file, some above 0")
    positions = content.get("positions", [])
    if not isinstance(positions, list) or not all(map(_is_count, positions)):
        raise UnusableFileError(f"{path}: positions: expected whole numbers")
    if positions and len(positions) != len(files):
        raise UnusableFileError(f"{path}: positions: expected the items of each file")
    return CommittedCheckpoint(lease, steps, tuple(files), tuple(weights), tuple(positions))


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_NUMBER


def _is_file_name(value: object) -> bool:
    return isinstance(value, str) and _FILE_NAME.fullmatch(value) is not None
