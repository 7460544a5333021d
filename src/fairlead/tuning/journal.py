"""Journal of a search: one line per change, synced before the change is carried out.

After a kill at any instant the controller resumes from it. A line that was not written completely
is dropped: its change had not been carried out.
"""

import fcntl
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

from fairlead.atomic_file import fsync_directory
from fairlead.model.errors import InputError
from fairlead.model.submission.search import Search, Value

_FIRST = b'{"search_id": "'
"""begin of the first line"""


@dataclass(slots=True)
class Trial:
    """One trial of a search, as far as the journal knows it."""

    number: int
    point: Mapping[str, Value]
    job: str | None = None
    """id of its job; None until the server has accepted it"""
    stopped: str | None = None
    """reason for which the controller stopped it"""
    state: str | None = None
    """last state of its job; None until it has ended"""
    best: float | None = None
    """best reported value of the metric"""
    steps: float = 0.0
    source: int | None = None
    """trial whose checkpoint it continues"""
    replaces: int | None = None
    """trial that stops once this one is submitted"""
    judged: int = 0
    """intervals after which it was compared with others (population-based training)"""

    @property
    def has_ended(self) -> bool:
        """Whether its job has ended."""
        return self.state is not None


class Journal:
    """The open journal of one search; only one process may have it open."""

    def __init__(self, file: BinaryIO, search_id: str, trials: dict[int, Trial]) -> None:
        self._file = file
        self.search_id = search_id
        """random text that distinguishes this run from others of the same search"""
        self.trials = trials
        """by number"""

    @classmethod
    def create(cls, path: Path, search: Search, command: tuple[str, ...]) -> "Journal":
        """Create the journal of a new search; InputError if the file exists."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            fix = "expected --resume to continue this search, or another --journal"
            raise InputError(f"{path} exists", fix=fix, field="journal") from None
        except OSError as error:
            fix = "expected a path that can be written"
            raise InputError(f"{path}: {error.strerror}", fix=fix, field="journal") from None
        file = os.fdopen(descriptor, "r+b")
        _lock(file, path)
        fsync_directory(str(path.parent))
        return cls._begin(file, search, command)

    @classmethod
    def _begin(cls, file: BinaryIO, search: Search, command: tuple[str, ...]) -> "Journal":
        """Write the first line."""
        made = cls(file, uuid.uuid4().hex[:12], {})
        made._append({"search_id": made.search_id, "search": _described(search, command)})
        return made

    @classmethod
    def resume(cls, path: Path, search: Search, command: tuple[str, ...]) -> "Journal":
        """Open the journal of the same search; InputError if it belongs to another."""
        try:
            file = open(path, "r+b")  # noqa: SIM115  # closed by close()
        except OSError as error:
            fix = "expected the journal of the search to resume"
            raise InputError(f"{path}: {error.strerror}", fix=fix, field="journal") from None
        _lock(file, path)
        try:
            text = file.read()
            whole = _complete_lines(text)
            if not whole and text[: len(_FIRST)] == _FIRST[: len(text)]:
                file.truncate(0)  # a kill came before the first line was complete
                return cls._begin(file, search, command)
            search_id = _require_same(text.partition(b"\n")[0], search, command, path)
            trials = _trials(whole[1:], path)
        except InputError:
            file.close()
            raise
        # Only a journal is cut: the path may have named another file.
        file.truncate(sum(map(len, whole)))
        return cls(file, search_id, trials)

    def add(self, trial: Trial) -> None:
        """Persist a new trial, before its job is submitted."""
        origin = {"source": trial.source, "replaces": trial.replaces}
        known = {name: number for name, number in origin.items() if number is not None}
        self._append({"trial": trial.number, "point": trial.point, **known})
        self.trials[trial.number] = trial

    def change(self, trial: Trial, **values: Any) -> None:
        """Persist and set attributes of a trial."""
        self._append({"trial": trial.number, **values})
        for name, value in values.items():
            setattr(trial, name, value)

    def close(self) -> None:
        """Close the file, which unlocks it."""
        self._file.close()

    def _append(self, record: Mapping[str, Any]) -> None:
        self._file.seek(0, os.SEEK_END)
        self._file.write(json.dumps(record).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def _lock(file: BinaryIO, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        fix = "expected one `fairlead tune` per journal; stop the other one first"
        raise InputError(f"{path} is in use", fix=fix, field="journal") from None


def _complete_lines(text: bytes) -> list[bytes]:
    """Return the lines without a last one that was not written completely."""
    return text[: text.rfind(b"\n") + 1].splitlines(keepends=True)


def _require_same(line: bytes, search: Search, command: tuple[str, ...], path: Path) -> str:
    """Return the id in the first line; InputError unless it describes this search."""
    head = _record(line, path)
    try:
        search_id, described = str(head["search_id"]), {**_defaults(), **head["search"]}
    except (KeyError, TypeError):
        raise _damaged(path, "no search in its first line") from None
    if described != _described(search, command):
        fix = "expected the unchanged search file and command, or another --journal"
        raise InputError(f"{path} belongs to another search", fix=fix, field="journal")
    return search_id


def _trials(lines: Sequence[bytes], path: Path) -> dict[int, Trial]:
    """Return the trials after all changes."""
    trials: dict[int, Trial] = {}
    for line in lines:
        record = _record(line, path)
        try:
            number = record.pop("trial")
            if "point" in record:
                trials[number] = Trial(number, record["point"])
            for name, value in record.items():
                setattr(trials[number], name, value)
        except (KeyError, TypeError, AttributeError):
            raise _damaged(path, f"not a change of a trial: {line[:100]!r}") from None
    return trials


def _record(line: bytes, path: Path) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, str(error)) from None
    if not isinstance(record, dict):
        raise _damaged(path, f"not an object: {line[:100]!r}")
    return record


def _damaged(path: Path, problem: str) -> InputError:
    fix = "expected the journal of a search"
    return InputError(f"{path} is damaged ({problem})", fix=fix, field="journal")


def _defaults() -> dict[str, Any]:
    """Return the defaults of a search's fields, which an earlier version may not have known."""
    return {item.name: item.default for item in fields(Search) if item.default is not MISSING}


def _described(search: Search, command: tuple[str, ...]) -> dict[str, Any]:
    """Return what must not change between a search and its resumption, as JSON has it."""
    described = {**asdict(search), "command": command}
    known: dict[str, Any] = json.loads(json.dumps(described))
    return known
