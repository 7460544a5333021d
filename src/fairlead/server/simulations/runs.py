"""Simulations of a running server: one at a time per tenant, each with limits, cancellable."""

import asyncio
import json
import os
import secrets
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import structlog

from fairlead.model.errors import ProtocolError
from fairlead.server.simulations import process
from fairlead.server.simulations.request import SimulationRequest

log = structlog.get_logger("fairlead.server")

MAX_WALL_S = 900.0
_MAX_RUNNING = 2
"""simulations of all users at a time: the scheduler needs a core"""
_MAX_KEPT = 5
"""ended simulations kept per user"""
_MAX_KEPT_IN_ALL = 50
_VARIABLES = ("PATH", "PYTHONPATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")
"""variables of the server that a process gets"""

State = Literal["running", "done", "failed", "cancelled"]


@dataclass(slots=True, eq=False)
class Simulation:
    """One simulation."""

    id: str
    owner: str
    """id of the token that started it"""
    tenant: str | None
    """None: an admin's"""
    request: SimulationRequest
    started_at: float
    folder: Path
    state: State = "running"
    error: str = ""
    done: int = 0
    total: int = 0
    result: Mapping[str, Any] | None = None
    process: Process | None = None


class SimulationRuns:
    """Simulations by id; they end with the server, and their files are removed at its start."""

    def __init__(self, data: Path, max_wall_s: float = MAX_WALL_S) -> None:
        self._folder = data / "simulations"
        self._max_wall_s = max_wall_s
        self._runs: dict[str, Simulation] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_clean = False
        self._preparing = asyncio.Lock()
        """held while the files of an earlier server are removed"""
        self._checking = asyncio.Lock()
        """one check of a request at a time: a large trace takes a core for seconds"""

    def of(self, owner: str) -> list[Simulation]:
        """Return the simulations of a user, the newest first."""
        return [run for run in reversed(self._runs.values()) if run.owner == owner]

    async def start(
        self, owner: str, request: SimulationRequest, at: float, *, tenant: str | None = None
    ) -> Simulation:
        """Start a simulation after all checks; refuse a second one of the same user or tenant."""
        running = [run for run in self._runs.values() if run.state == "running"]
        if any(run.owner == owner for run in running):
            raise ProtocolError("one of your simulations is running: wait for it or cancel it")
        if tenant is not None and any(run.tenant == tenant for run in running):
            raise ProtocolError(f"another simulation of tenant {tenant!r} is running: wait for it")
        if len(running) >= _MAX_RUNNING:
            raise ProtocolError(f"{_MAX_RUNNING} simulations of other users are running: wait")
        id_ = secrets.token_hex(8)
        run = Simulation(id_, owner, tenant, request, at, self._folder / id_)
        self._runs[id_] = run  # before the checks, which take seconds for a large trace
        try:
            async with self._checking:
                if run.state == "running":
                    # The process would find the same errors, but only later.
                    await asyncio.to_thread(request.comparison)
        except BaseException:
            self._runs.pop(id_, None)
            raise
        task = asyncio.ensure_future(self._carry_out(run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return run

    def cancel(self, run: Simulation) -> None:
        """End a simulation at once."""
        if run.state == "running":
            run.state = "cancelled"
            _kill(run)

    async def refresh(self, run: Simulation) -> None:
        """Read the progress of a simulation."""
        if run.state == "running":
            progress = await asyncio.to_thread(_read, run.folder / process.PROGRESS)
            run.done, run.total = progress.get("done", 0), progress.get("total", 0)

    async def _carry_out(self, run: Simulation) -> None:
        try:
            async with self._preparing:
                await asyncio.to_thread(self._prepare, run)
            await self._wait(run)
        except Exception as error:  # the scheduler continues
            log.error("simulation.failed", id=run.id, error=repr(error))
            run.state, run.error = "failed", "it could not be started; see the server's log"
        finally:
            _kill(run)
            for folder in self._forget_oldest(run.owner):
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def _prepare(self, run: Simulation) -> None:
        if not self._is_clean:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._is_clean = True
        self._folder.mkdir(mode=0o700, exist_ok=True)
        run.folder.mkdir(mode=0o700)
        request = json.dumps(asdict(run.request))
        (run.folder / process.REQUEST).write_text(request, encoding="utf-8")

    async def _wait(self, run: Simulation) -> None:
        """Run the process to its end, and take its result."""
        if run.state != "running":
            return  # cancelled before it began
        run.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", process.__name__, str(run.folder)),
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=DEVNULL,
            env=_environment(),
            start_new_session=True,
        )
        if run.state != "running":
            return
        try:
            async with asyncio.timeout(self._max_wall_s):
                await run.process.wait()
        except TimeoutError:
            run.state, run.error = "failed", f"it took longer than {self._max_wall_s:g} s"
        if run.state != "running":
            return
        await self.refresh(run)
        result = await asyncio.to_thread(_read, run.folder / process.RESULT)
        if "rows" in result:
            run.state, run.result = "done", result
        else:
            limits = f"{process.MAX_CPU_S} s of CPU time or {process.MAX_MEMORY_BYTES >> 30} GiB"
            run.state = "failed"
            run.error = str(result.get("error", f"its process died; it may have used {limits}"))

    def _forget_oldest(self, owner: str) -> list[Path]:
        """Forget ended simulations beyond the limits, and return their folders."""
        ended = [run for run in self._runs.values() if run.state != "running"]
        own = [run for run in ended if run.owner == owner]
        forgotten = {*own[:-_MAX_KEPT], *ended[:-_MAX_KEPT_IN_ALL]}
        for run in forgotten:
            del self._runs[run.id]
        return [run.folder for run in forgotten]


def _environment() -> dict[str, str]:
    """Return the variables of a process, without the server's secrets; one thread suffices."""
    kept = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    return kept | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def _kill(run: Simulation) -> None:
    if run.process is not None and run.process.returncode is None:
        run.process.kill()


def _read(path: Path) -> dict[str, Any]:
    """Return a JSON object; an empty one if it is not there yet."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
