"""A lease's directory: what its keeper was told, whether it lives, and what became of it.

``order.json`` is written by the engine before the keeper starts. The keeper holds a lock on
``alive`` for as long as it lives, which no process number used again can feign, and leaves
``members.json`` while processes run and ``exit.json`` when all have ended.
"""

import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, TextIO

from fairlead.engines.base import Ended, Order


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replace a file so that a reader sees the old or the new one, never a part."""
    aside = path.with_suffix(f".{os.getpid()}.tmp")
    with aside.open("w", encoding="utf-8") as file:
        file.write(json.dumps(value))
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return what a file holds, None if there is none."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return found


def write_order(directory: Path, order: Order) -> None:
    """Leave an order for the keeper; it may hold secrets, so only the owner can read it."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_json(directory / "order.json", _members(order))


def read_order(directory: Path) -> Order:
    """Return the order that was left."""
    found = read_json(directory / "order.json")
    if found is None:
        raise FileNotFoundError(directory / "order.json")
    found["command"] = tuple(found["command"])
    found["accelerators"] = tuple(found["accelerators"])
    found["visible"] = tuple(found.get("visible", ()))
    found["devices"] = tuple((node, number) for node, number in found["devices"])
    return Order(**found)


def hold(directory: Path) -> TextIO | None:
    """Return the lock that shows a keeper alive, None if another one holds it."""
    file = (directory / "alive").open("a", encoding="ascii")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def is_alive(directory: Path) -> bool:
    """Tell whether a keeper lives in this directory."""
    if not (directory / "alive").exists():
        return False
    held = hold(directory)
    if held is None:
        return True
    held.close()
    return False


def started(pid: int) -> int | None:
    """Return when a process that lives was started, in ticks since the machine was; else None.

    Number and start together are one process's for good.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def remove(directory: Path) -> None:
    """Remove the directory of a lease that nobody asks about, unless a keeper lives in it.

    A keeper that begins only now finds no order and does not run.
    """
    try:
        held = hold(directory)
    except FileNotFoundError:
        return
    if held is not None:
        with held, suppress(OSError):  # what cannot be removed now is so at the next start
            for path in directory.iterdir():
                path.unlink()
            directory.rmdir()


def write_ended(directory: Path, ended: Ended) -> None:
    """Leave what became of the lease."""
    write_json(directory / "exit.json", _members(ended))


def read_ended(directory: Path) -> Ended | None:
    """Return what became of the lease, None if it has not ended or died without a word."""
    found = read_json(directory / "exit.json")
    if found is None:
        return None
    found["exit_codes"] = tuple(found["exit_codes"])
    return Ended(**found)


def _members(value: Order | Ended) -> dict[str, Any]:
    """Return a value's fields, all of which JSON can say."""
    return {field.name: getattr(value, field.name) for field in fields(value)}
