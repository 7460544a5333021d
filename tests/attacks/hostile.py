"""Hostile files, and orders of jobs that write them."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fairlead.engines.base import LaunchOrder

T = TypeVar("T")

NOBODY = 65534
"""user and group of a tenant in these tests"""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act for several users")


def order(root: Path, lease: int = 5, **changes: Any) -> LaunchOrder:
    """Return the order of a lease whose files are in ``root``."""
    values: dict[str, Any] = {
        "lease": lease,
        "job": "j1",
        "command": ("true",),
        "directory": "/",
        "environment": {"SECRET": "hunter2"},
        "devices": (("n1", 0),),
        "accelerators": ("v100",),
        "checkpoint_dir": str(root / "jobs" / "j1" / "checkpoint"),
        "log_dir": str(root / "jobs" / "j1" / "logs"),
        "tenant": "nobody",
    }
    return LaunchOrder(**{**values, **changes})


def within(call: Callable[[], T], limit_s: float = 30.0) -> T:
    """Return the result of a call, or raise its error; fail if it blocks."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    assert not thread.is_alive(), f"blocked for {limit_s} s"
    if errors:
        raise errors[0]
    return results[0]


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _directory(path: Path) -> None:
    path.mkdir()
    (path / "inside").touch()


def _link(path: Path) -> None:
    target = path.with_name(f"{path.name}.target")
    target.write_text('{"steps": 1}', encoding="ascii")
    path.symlink_to(target)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 36)


def _not_utf8(path: Path) -> None:
    path.write_bytes(b'{"a": "\xff\xfe"}')


def _text(text: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_text(text, encoding="utf-8")

    return make


HOSTILE: dict[str, Callable[[Path], None]] = {
    "fifo": _fifo,
    "directory": _directory,
    "link": _link,
    "endless": _endless,
    "huge": _huge,
    "brace": _text("{"),
    "empty": _text(""),
    "list": _text("[1]"),
    "number": _text("1"),
    "null": _text("null"),
    "empty object": _text("{}"),
    "not UTF-8": _not_utf8,
    "deep": _text("[" * 100_000),
    "digits": _text("9" * 5000),
    "wrong types": _text(
        '{"lease": [], "steps": {}, "files": 3, "ending": 7, "message": 1, "exit_codes": "x",'
        ' "keeper": "1", "members": 5, "started": null, "grace_s": "x", "why": 1, "port": []}'
    ),
    "not numbers": _text(
        '{"lease": NaN, "steps": Infinity, "files": [], "ending": "left", "message": "",'
        ' "exit_codes": [NaN], "keeper": NaN, "members": [NaN], "started": [1, 2],'
        ' "grace_s": NaN, "why": "", "port": 1e999}'
    ),
}
"""name → function that makes a hostile file at a path"""


def each_hostile() -> list[Any]:
    """Return pytest parameters for all hostile files."""
    return [pytest.param(make, id=name) for name, make in HOSTILE.items()]
