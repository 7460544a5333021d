"""Exits of a job's processes: codes, signals and the last lines of their logs."""

import signal
from collections.abc import Collection, Sequence
from pathlib import Path

from fairlead.engines.keeper import log_file

_NOT_STARTED = 125
"""exit code of docker and podman for failures of their own"""
_MAX_TAIL_LINES, _MAX_TAIL_BYTES = 20, 4096


def shell_code(code: int) -> int:
    """Return an exit code as shells have it: 128 plus the signal for a killed process."""
    return 128 - code if code < 0 else code


def exit_text(code: int) -> str:
    """Return an exit code with the signal it stands for: ``137 (SIGKILL)``."""
    name = signal_of(code)
    return str(shell_code(code)) if name is None else f"{shell_code(code)} ({name})"


def failure_text(codes: Collection[int], *, in_container: bool) -> str:
    """Return why a job failed: ``it exited with 1, 137 (SIGKILL)``."""
    text = f"it exited with {', '.join(exit_text(code) for code in sorted(set(codes)))}"
    if in_container and _NOT_STARTED in codes:
        text += ": its container could not be started; the job's log says why"
    return text


def signal_of(code: int) -> str | None:
    """Return the signal that ended a process, None if it exited by itself."""
    try:
        return signal.Signals(shell_code(code) - 128).name
    except ValueError:
        return None


def failed_rank(codes: Sequence[int]) -> int:
    """Return the first member that failed, otherwise 0."""
    return next((rank for rank, code in enumerate(codes) if code), 0)


def log_tail(
    directory: Path,
    lease: int,
    rank: int,
    most: int = _MAX_TAIL_LINES,
    size: int = _MAX_TAIL_BYTES,
) -> list[str]:
    """Return the last lines that a member of a lease has printed, without control characters.

    At most so many lines and bytes.
    """
    path = directory / f"{lease}.{rank}.log"
    end = log_file.end_of(path)
    begin, piece = log_file.read(path, max(end - size, 0), size)
    lines = piece.decode("utf-8", "replace").splitlines()
    if begin > 0 and len(lines) > 1:
        del lines[0]  # it has lost its beginning
    return [_escaped(line) for line in lines[-most:]]


def _escaped(line: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
