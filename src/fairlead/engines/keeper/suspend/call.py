"""A call of the driver that a keeper makes while it follows its process."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

_MAX_ANSWER_BYTES = 1 << 16


class DriverCall:
    """One call in a process of its own; its answer is read piece by piece."""

    def __init__(self, operation: str, *arguments: object) -> None:
        """Start the call ``suspend`` or ``resume``."""
        command = [sys.executable, "-m", "fairlead.engines.keeper.suspend.driver", operation]
        self._process = subprocess.Popen(
            [*command, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout
        os.set_blocking(self.fileno(), False)
        self._answer = b""
        self.has_ended = False

    @property
    def pid(self) -> int:
        """Process ID of the call."""
        return self._process.pid

    def fileno(self) -> int:
        """Return the descriptor that can be read when there is a part of the answer."""
        return self._output.fileno()

    def read(self) -> None:
        """Read a part of the answer."""
        chunk = os.read(self.fileno(), _MAX_ANSWER_BYTES)
        self._answer += chunk
        self.has_ended = not chunk or len(self._answer) > _MAX_ANSWER_BYTES

    def close(self) -> tuple[Sequence[int], float, str]:
        """End the call; return its processes and its seconds, or its problem."""
        self._process.kill()
        self._process.wait()
        self._output.close()
        try:
            answer: Any = json.loads(self._answer)
            if "problem" in answer:
                return (), 0.0, str(answer["problem"])
            return [int(pid) for pid in answer["pids"]], float(answer["seconds"]), ""
        except (ValueError, KeyError, TypeError):
            return (), 0.0, "the call of the driver ended without an answer"
