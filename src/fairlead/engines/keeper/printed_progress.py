"""Progress of jobs without the library, read from their output."""

import math
import re
import signal
import sys
import time

_PATTERN_TIMEOUT_S = 1.0
"""maximum time to search the lines of one chunk of output"""
_MAX_LOAD = 0.2
"""maximum fraction of a keeper's time for searches"""
_MAX_LINE_BYTES = 4096
"""length from the end of a line that is searched"""


class PrintedProgress:
    """Searches output for the number of steps; needs ``raise_timeout`` as SIGALRM handler."""

    def __init__(self, pattern: str | None) -> None:
        self._source = pattern
        """pattern to search for; None once it is too slow"""
        self._pattern: re.Pattern[str] | None = None
        self._budget_s, self._counted_at = _PATTERN_TIMEOUT_S, time.monotonic()
        """time left for searches at a time; later output is not searched without any"""
        self.steps: float | None = None
        """steps printed last"""

    def read(self, text: bytes) -> bytes:
        """Update ``steps`` from complete lines of ``text``; return the incomplete last line."""
        if self._source is None:
            return b""
        *lines, rest = re.split(rb"[\r\n]", text)  # progress bars end a line with a return
        began = time.monotonic()
        earned_s = (began - self._counted_at) * _MAX_LOAD
        self._budget_s, self._counted_at = (
            min(self._budget_s + earned_s, _PATTERN_TIMEOUT_S),
            began,
        )
        if lines and self._budget_s > 0:
            self._search(self._source, lines)
            self._budget_s -= time.monotonic() - began
        return rest[-_MAX_LINE_BYTES:]

    def _search(self, source: str, lines: list[bytes]) -> None:
        try:
            signal.setitimer(signal.ITIMER_REAL, _PATTERN_TIMEOUT_S)
            pattern = self._pattern = self._pattern or re.compile(source)
            for line in lines:
                match = pattern.search(line[-_MAX_LINE_BYTES:].decode(errors="replace"))
                steps = _parse_steps(match.group(1)) if match else None
                self.steps = self.steps if steps is None else steps
        except (TimeoutError, re.error, OverflowError, RecursionError, IndexError) as error:
            self._source = None
            problem = "too slow" if isinstance(error, TimeoutError) else str(error)
            sys.stderr.write(f"progress pattern: {problem}: it is no longer searched for\n")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)


def raise_timeout(*_: object) -> None:
    """Interrupt a search that takes too long."""
    raise TimeoutError


def _parse_steps(text: str | None) -> float | None:
    """Return a number of steps, None for text that is not one."""
    try:
        steps = float(text or "")
    except ValueError:
        return None
    return steps if 0 <= steps < math.inf else None
