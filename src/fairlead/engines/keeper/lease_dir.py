"""A lease's directory: order, keeper lock, members, progress and outcome.

The engine writes ``order.json`` before it starts the keeper. While it lives the keeper holds a
lock on ``alive``, which a reused PID cannot fake. It writes ``members.json`` while processes run
and ``exit.json`` when all have ended.

Jobs may be able to write here. So a file that is damaged, too large or not a regular one counts as
missing: it can end its own lease and no other.
"""

import fcntl
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TextIO, TypeGuard

from fairlead import untrusted_file
from fairlead.atomic_file import replace_file
from fairlead.engines.base import Ended, LaunchOrder
from fairlead.job import status_file
from fairlead.model.lease_outcome import WORST_FIRST
from fairlead.untrusted_file import UnusableFileError

ORDER = "order.json"
"""file that the engine writes before it starts the keeper"""
PARKED = "parked.json"
"""file that a keeper writes before it reports the end of a lease whose processes stay"""
_MAX_FILE_BYTES = 16 << 20
_MAX_REPORT_BYTES = 1 << 18
"""maximum size of a file that a keeper writes; the server reads these several times a second"""
_MAX_MESSAGE = 2000
"""maximum length of a message about the end of a lease, in characters"""
_STATUS_BYTES = 8
"""maximum size of a member's status file"""
_MAX_STEPS = 2.0**53
_MAX_DIGITS = 18
"""maximum number of digits of a lease's number"""


@dataclass(frozen=True, slots=True)
class Members:
    """Processes of a gang, as their keeper lists them."""

    keeper: int
    """process ID of the keeper"""
    started: tuple[tuple[int, int | None], ...]
    """(process ID, start in ticks) of each member"""


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Request to a keeper to stop its members."""

    grace_s: float
    why: str


def write_json(path: Path, value: Mapping[str, Any], *, durable: bool = True) -> None:
    """Replace a file of a lease's directory; only the owner of the directory can read it.

    A file that is not ``durable`` may be damaged by a power failure.
    """
    content = json.dumps(value).encode()
    for is_retry in (False, True):
        try:
            # Its name need not survive a power failure: no keeper does, and a lease whose files
            # are missing counts as lost.
            replace_file(
                path,
                content,
                mode=0o600,
                durable=durable,
                sync_directory=False,
                for_directory_owner=True,
            )
        except IsADirectoryError:
            if is_retry:
                raise
            _discard(path)
        else:
            return


def read_json(path: Path, max_bytes: int = _MAX_REPORT_BYTES) -> dict[str, Any] | None:
    """Return the content of a file, None if there is none or it is damaged."""
    try:
        content = json.loads(untrusted_file.read(path, max_bytes))
    except (FileNotFoundError, UnusableFileError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def list_leases(root: Path) -> dict[int, Path]:
    """Return lease → its directory, by number; jobs may have put other files there."""
    with os.scandir(root) as entries:
        names = [
            entry.name
            for entry in entries
            if entry.name.isascii() and entry.name.isdigit() and len(entry.name) <= _MAX_DIGITS
            if entry.is_dir(follow_symlinks=False)
        ]
    return {int(name): root / name for name in sorted(names)}


def write_order(directory: Path, order: LaunchOrder) -> None:
    """Write the keeper's order; it may hold secrets, so only the owner can read the directory."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    directory.chmod(0o700)
    write_json(directory / ORDER, as_dict(order))


def read_order(directory: Path, name: str = ORDER) -> LaunchOrder:
    """Return the keeper's order; FileNotFoundError if there is none or it is damaged."""
    order = read_json(directory / name, _MAX_FILE_BYTES)
    if order is None:
        raise FileNotFoundError(directory / name)
    try:
        order["command"] = tuple(order["command"])
        order["accelerators"] = tuple(order["accelerators"])
        order["visible"] = tuple(order.get("visible", ()))
        order["devices"] = tuple((str(node), int(number)) for node, number in order["devices"])
        made = LaunchOrder(**order)
    except (KeyError, TypeError, ValueError):
        raise FileNotFoundError(directory / name) from None
    if not _is_usable(made):
        raise FileNotFoundError(directory / name)
    return made


def _is_usable(order: LaunchOrder) -> bool:
    """Return whether the fields of an order that its readers rely on have their types."""
    texts = (order.job, order.directory, order.checkpoint_dir, order.log_dir, order.tenant)
    limits = (order.total_steps, order.world_size, order.max_processes)
    return (
        _is_count(order.lease)
        and all(isinstance(text, str) for text in (*texts, order.meets_at, *order.command))
        and all(isinstance(text, str) for text in (order.user, order.container))
        and isinstance(order.code_snapshot, str)
        and isinstance(order.environment, dict)
        and isinstance(order.secrets, dict)
        and len(order.devices) == len(order.accelerators) > 0
        and all(isinstance(name, str) for name in order.accelerators)
        and is_number(order.grace_s)
        and _is_count(order.first_rank)
        and all(limit is None or _is_count(limit) for limit in limits)
        and isinstance(order.progress_pattern, str | None)
        and is_number(order.offload_gib)
        and isinstance(order.may_stay, bool)
        and isinstance(order.forks, bool)
        and (order.resumes is None or _is_count(order.resumes))
    )


def home_of(directory: Path) -> Path:
    """Return the directory in which a lease's keeper began: that of its processes' first lease."""
    first = (read_json(directory / "order.json", _MAX_FILE_BYTES) or {}).get("resumes")
    return directory.parent / str(first) if _is_count(first) else directory


def was_parked(directory: Path) -> bool:
    """Return whether processes may have stayed after the end of a directory's lease."""
    return (directory / PARKED).exists()


def write_members(directory: Path, keeper: int, pids: Sequence[int]) -> None:
    """List the processes of the gang."""
    started = [process_start_ticks(pid) for pid in pids]
    content = {"keeper": keeper, "members": list(pids), "started": started}
    write_json(directory / "members.json", content, durable=False)


def read_members(directory: Path) -> Members | None:
    """Return the processes of the gang, None before they run."""
    content = read_json(directory / "members.json") or {}
    keeper, pids, started = (content.get(name) for name in ("keeper", "members", "started"))
    if not (_is_pid(keeper) and isinstance(pids, list) and isinstance(started, list)):
        return None
    if len(pids) != len(started) or not all(map(_is_pid, pids)):
        return None
    if not all(at is None or _is_count(at) for at in started):
        return None
    return Members(keeper, tuple(zip(pids, started, strict=True)))


def read_progress(directory: Path) -> float | None:
    """Return the steps that members have printed, None if there are none."""
    steps = (read_json(directory / "progress.json") or {}).get("steps")
    return float(steps) if is_number(steps) and steps <= _MAX_STEPS else None


def read_status(directory: Path, member: int, default: int) -> int:
    """Return the exit status that a member has written, ``default`` if there is none."""
    try:
        return int(untrusted_file.read(directory / f"status.{member}", _STATUS_BYTES))
    except (OSError, ValueError):
        return default


def read_own_exit(directory: Path, member: int, pid: int) -> float | None:
    """Return the steps after which a member has exited by itself, None if that is unknown."""
    try:
        content = untrusted_file.read(directory / f"status.{member}", status_file.MAX_BYTES)
    except OSError:
        return None
    steps = status_file.steps_at_own_exit(content, pid)
    return steps if steps is not None and steps <= _MAX_STEPS else None


def read_stop(directory: Path) -> StopRequest | None:
    """Return the stop request for the keeper, None if there is none."""
    request = read_json(directory / "stop") or {}
    grace_s, why = request.get("grace_s"), request.get("why", "")
    if not is_number(grace_s) or not isinstance(why, str):
        return None
    return StopRequest(float(grace_s), why)


def lost_before_start(lease: int) -> Ended:
    """Return the end of a lease that was ordered and never reached its node."""
    return Ended(lease, "lost", None, "never started")


def try_lock(directory: Path) -> TextIO | None:
    """Return the locked file that shows a keeper alive, None if another keeper holds the lock."""
    path = directory / "alive"
    try:
        file = _open_lock(path)
    except UnusableFileError:  # not the keeper's: that is a regular file
        _discard(path)
        file = _open_lock(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def is_alive(directory: Path) -> bool:
    """Return whether a keeper lives in this directory."""
    if not (directory / "alive").exists():
        return False
    lock = try_lock(directory)
    if lock is None:
        return True
    lock.close()
    return False


def process_start_ticks(pid: int) -> int | None:
    """Return the start of a living process, in ticks since the machine's start; else None.

    PID and start together identify a process, although PIDs are reused.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    stat = text.rpartition(")")[2].split()
    return None if stat[0] in "ZX" else int(stat[19])


def remove(directory: Path) -> None:
    """Remove the directory of a lease that has ended, unless a keeper lives in it.

    A keeper that starts only now finds no order and does not run.
    """
    try:
        lock = try_lock(directory)
    except FileNotFoundError:
        return
    if lock is not None:
        with lock, suppress(OSError):  # the next start of the server retries
            for path in directory.iterdir():
                _discard(path)
            directory.rmdir()


def write_ended(directory: Path, ended: Ended) -> None:
    """Write the end of the lease.

    After a power failure a lease without an end is lost, with the steps of its checkpoint: as good
    as the end of one whose processes stayed.
    """
    write_json(directory / "exit.json", as_dict(ended), durable=not ended.parked)


def read_ended(directory: Path, lease: int) -> Ended | None:
    """Return the end of the lease of a directory, None if it has not ended or its keeper died."""
    content = read_json(directory / "exit.json")
    if (
        content is None
        or content.get("lease") != lease
        or content.get("ending") not in WORST_FIRST
    ):
        return None
    steps, message = content.get("steps"), content.get("message", "")
    codes, switch = content.get("exit_codes", []), content.get("switch", "")
    if steps is not None and not (is_number(steps) and steps <= _MAX_STEPS):
        return None
    if not (isinstance(message, str) and isinstance(codes, list) and all(map(_is_int, codes))):
        return None
    fence, unsaved = content.get("fence"), content.get("unsaved")
    return Ended(
        lease,
        content["ending"],
        steps,
        message[:_MAX_MESSAGE],
        tuple(codes),
        fence if _is_count(fence) else None,
        parked=content.get("parked") is True,
        resumed=content.get("resumed") is True,
        handed_over=content.get("handed_over") is True,
        unsaved=float(unsaved) if is_number(unsaved) and unsaved <= _MAX_STEPS else None,
        suspended=content.get("suspended") is True,
        switch=switch[:_MAX_MESSAGE] if isinstance(switch, str) else "",
    )


def ended_at(directory: Path) -> float | None:
    """Return the time of a lease's end by the clock of its node; None if it is unknown."""
    at = (read_json(directory / "exit.json") or {}).get("at")
    return float(at) if is_number(at) else None


def _open_lock(path: Path) -> TextIO:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    return open(untrusted_file.open_regular(path, flags, 0o600), "a", encoding="ascii")


def _discard(path: Path) -> None:
    """Remove a file, a link or a directory."""
    if path.is_dir() and not path.is_symlink():
        untrusted_file.remove_tree(path)
    else:
        path.unlink(missing_ok=True)


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MAX_STEPS


def _is_count(value: object) -> TypeGuard[int]:
    return _is_int(value) and value >= 0


def _is_pid(value: object) -> TypeGuard[int]:
    return _is_int(value) and 1 < value < 1 << 31


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite number, at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= sys.float_info.max


def as_dict(value: LaunchOrder | Ended) -> dict[str, Any]:
    """Return a value's fields, all of which JSON can represent."""
    return {field.name: getattr(value, field.name) for field in fields(value)}
