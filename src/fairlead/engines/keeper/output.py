"""Output of a gang's members: copied from their pipes to log files, and searched for steps."""

import os
import selectors
import time
from collections.abc import Callable

from fairlead.engines.keeper.log_file import LogFile
from fairlead.engines.keeper.printed_progress import PrintedProgress

_MAX_CHUNKS = 16  # of a member's output at a time: limits apply to endless output, too
EXIT_POLL_S = 0.02
"""seconds between two polls of members that closed their output: most are about to exit"""


class MemberOutput:
    """Pipes of all members of one gang."""

    def __init__(self, pattern: str | None, on_progress: Callable[[float], object]) -> None:
        """Search for steps with ``pattern`` and pass each new number to ``on_progress``."""
        self._logs: dict[int, tuple[LogFile, bytes]] = {}
        self._selector = selectors.DefaultSelector()
        self._progress = PrintedProgress(pattern)
        self._on_progress = on_progress

    @property
    def steps(self) -> float | None:
        """Steps that members have printed, None if there are none."""
        return self._progress.steps

    def open_pipe(self, log: LogFile) -> int:
        """Return the writing end of a new pipe whose output goes to a log."""
        reading, writing = os.pipe()
        self._logs[reading] = (log, b"")
        os.set_blocking(reading, False)
        self._selector.register(reading, selectors.EVENT_READ)
        return writing

    def watch(self, source: int, on_input: Callable[[], object]) -> None:
        """Call ``on_input`` from ``copy`` whenever another source can be read."""
        self._selector.register(source, selectors.EVENT_READ, on_input)

    def unwatch(self, source: int) -> None:
        """Forget a source."""
        self._selector.unregister(source)

    def note(self, line: str) -> None:
        """Write a line to the log of every member that may still print."""
        for source, (log, _) in self._logs.items():
            if source in self._selector.get_map():
                log.write(line.encode() + b"\n")

    def drop(self, count: int) -> None:
        """Forget the output of the members from ``count`` on, which have ended."""
        self.copy(0.0)
        for source, (log, _) in [*self._logs.items()][count:]:
            if source in self._selector.get_map():
                self._selector.unregister(source)
                os.close(source)
            log.close()
            del self._logs[source]

    def redirect(self, make_log: Callable[[int], LogFile]) -> None:
        """Continue in other logs, made for each member from 0."""
        for index, (source, (log, rest)) in enumerate([*self._logs.items()]):
            log.close()
            self._logs[source] = (make_log(index), rest)

    def copy(self, wait_s: float) -> None:
        """Copy the members' output to their logs; wait for some if there is none."""
        if not self._selector.get_map():
            time.sleep(min(wait_s, EXIT_POLL_S))
            return
        for key, _ in self._selector.select(wait_s):
            source = key.fd
            if key.data is not None:
                key.data()
                continue
            log, rest = self._logs[source]
            for _ in range(_MAX_CHUNKS):
                try:
                    chunk = os.read(source, 1 << 16)
                except BlockingIOError:
                    break
                if not chunk:
                    self._note_progress(rest + b"\n")
                    self._selector.unregister(source)
                    os.close(source)
                    log.close()
                    break
                log.write(chunk)
                rest = self._note_progress(rest + chunk)
            self._logs[source] = (log, rest)

    def close(self) -> None:
        """Close the logs."""
        for log, _ in self._logs.values():
            log.close()

    def _note_progress(self, text: bytes) -> bytes:
        """Report the steps that members print; return the incomplete last line."""
        before = self._progress.steps
        rest = self._progress.read(text)
        if self._progress.steps is not None and self._progress.steps != before:
            self._on_progress(self._progress.steps)
        return rest
