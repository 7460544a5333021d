"""Start of keeper processes."""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

KILL_SIGNAL = signal.SIGUSR1
"""tells a keeper to kill its members; one without a handler for it dies, and they with it"""

WAKE_SIGNAL = signal.SIGUSR2
"""tells a keeper that its parked process has a new lease"""


def start_keeper(directory: Path, module: str, environment: Mapping[str, str]) -> int:
    """Start a keeper in a new session; return its process ID."""
    appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", module, str(directory)],
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(directory / "keeper.log"), appending, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        # A stop signal that arrives before the keeper has its handler stays pending until then.
        setsigmask=[signal.SIGTERM],
        setsigdef=[signal.SIGCHLD],
    )
