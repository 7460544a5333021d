"""Progress of jobs without the library, read from their output."""

import math
import re
import signal
import sys

_PATTERN_TIMEOUT_S = 1.0
"""maximum time to search the lines of one chunk of output"""
_MAX_LINE_BYTES = 4096


class PrintedProgress:
    """Searches output for the number of steps; needs ``raise_timeout`` as SIGALRM handler."""

    def __init__(self, pattern: str | None) -> None:
        self._pattern = None if pattern is None else re.compile(pattern)
        self.steps: float | None = None
        """steps printed last"""

    def read(self, text: bytes) -> bytes:
        """Update ``steps`` from complete lines of ``text``; return the incomplete last line."""
        if self._pattern is None:
            return b""
        *lines, rest = re.split(rb"[\r\n]", text)  # progress bars end a line with a return
        signal.setitimer(signal.ITIMER_REAL, _PATTERN_TIMEOUT_S)
        try:
            for line in lines:
                match = self._pattern.search(line.decode(errors="replace"))
                steps = _parse_steps(match.group(1)) if match else None
                self.steps = self.steps if steps is None else steps
        except TimeoutError:
            self._pattern = None
            sys.stderr.write("progress pattern: too slow: it is no longer searched for\n")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        return rest[-_MAX_LINE_BYTES:]


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
