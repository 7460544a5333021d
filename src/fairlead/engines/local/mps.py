"""NVIDIA's Multi-Process Service (MPS), by which packed jobs run on a GPU at the same time.

Without it the driver gives the GPU to one process after the other. The control daemon has private
directories below the server's data, so that it is neither found nor used by others.
"""

import os
import shutil
import subprocess
from pathlib import Path

import structlog

from fairlead.model.errors import UsageError

log = structlog.get_logger("fairlead.local")

PROGRAM = "nvidia-cuda-mps-control"
_PIPES, _LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
_MAX_PATH_BYTES = 90
"""length of a directory's name, in which the daemon makes sockets; Linux allows names of 107"""
_ANSWER_S = 30.0
"""seconds within which the daemon starts, answers or quits"""


class MpsDaemon:
    """The control daemon of one server; running jobs keep it beyond the end of the server."""

    def __init__(self, data: Path) -> None:
        """Find the program; UsageError if the daemon could not run."""
        self._program = shutil.which(PROGRAM)
        self._pipes, self._logs = data / "mps" / "pipe", data / "mps" / "log"
        if self._program is None:
            raise UsageError(
                f"engine: local:mps: no program {PROGRAM!r} in PATH: expected NVIDIA's MPS, or"
                " --engine local"
            )
        if len(os.fsencode(self._pipes.absolute())) > _MAX_PATH_BYTES:
            raise UsageError(
                f"engine: local:mps: {self._pipes}: too long for sockets: expected a data"
                " directory with a shorter name"
            )

    @property
    def job_environment(self) -> dict[str, str]:
        """The variables by which a job's processes find the daemon."""
        return {_PIPES: str(self._pipes.absolute())}

    def start(self) -> None:
        """Start the daemon, unless an earlier server has left it for its jobs."""
        for directory in (self._pipes, self._logs):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._tell("get_server_list"):
            return
        try:
            self._run("-d")
        except (OSError, subprocess.SubprocessError) as error:
            text = getattr(error, "stderr", "") or str(error)
            problem = text.strip().partition("\n")[0]
            raise UsageError(
                f"engine: local:mps: {PROGRAM} -d: {problem}: expected that it starts, or"
                f" --engine local; its logs are in {self._logs}"
            ) from error
        log.info("mps.started", pipes=str(self._pipes))

    def stop(self) -> None:
        """Stop the daemon; only once no job uses it."""
        log.info("mps.stopped" if self._tell("quit") else "mps.not_stopped")

    def _tell(self, command: str) -> bool:
        """Send a command to the daemon; return whether it has answered."""
        try:
            self._run(text=command)
        except (OSError, subprocess.SubprocessError):
            return False
        return True

    def _run(self, *arguments: str, text: str = "") -> None:
        assert self._program is not None
        own = {_PIPES: str(self._pipes.absolute()), _LOGS: str(self._logs.absolute())}
        subprocess.run(
            [self._program, *arguments],
            input=text + "\n",
            env={**os.environ, **own},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=True,
            timeout=_ANSWER_S,
        )
