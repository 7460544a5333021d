"""Starts of jobs from the checkpoints of others: each is copied before its job is released."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from fairlead.job import checkpoint
from fairlead.live.checkpoints.copying import NoCheckpointError, copy_checkpoint
from fairlead.live.job_spec import JobSpec
from fairlead.model.errors import InputError

log = structlog.get_logger("fairlead.live")

_WORKERS = 4
"""checkpoints that are copied at a time"""


class CheckpointStarts:
    """Copies checkpoints in the background.

    A copy is complete or missing, so that after the death of the server the next one repeats it.
    """

    def __init__(
        self,
        specs: Mapping[str, JobSpec],
        checkpoint_dir: Callable[[str], str],
        on_done: Callable[[str, float, str], None],
    ) -> None:
        self._specs, self._checkpoint_dir = specs, checkpoint_dir
        self._on_done = on_done
        """receives the job, the steps of its checkpoint, and the problem if there is one"""
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._begun: set[str] = set()

    async def require(self, source: str) -> None:
        """Raise InputError unless a job has a checkpoint."""
        directory = self._checkpoint_dir(source)
        if await asyncio.to_thread(checkpoint.saved_steps, directory) is None:
            fix = "expected one that has saved its state (`run.checkpoint()`), or --after with it"
            raise InputError(f"job {source} has no checkpoint", fix=fix, field="start_from")

    def begin(self, job_id: str) -> None:
        """Copy the checkpoint that a held job starts from, unless that is under way."""
        if job_id not in self._begun:
            self._begun.add(job_id)
            self._queue.put_nowait(job_id)

    async def run(self) -> None:
        """Copy checkpoints until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_WORKERS):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            job_id = await self._queue.get()
            spec = self._specs.get(job_id)
            if spec is not None and spec.start_from is not None:
                steps, problem = await self._copy(spec.start_from, job_id)
                self._on_done(job_id, steps, problem)
            self._begun.discard(job_id)

    async def _copy(self, source: str, job_id: str) -> tuple[float, str]:
        """Return the steps of the copy, and the problem that prevented it."""
        folders = Path(self._checkpoint_dir(source)), Path(self._checkpoint_dir(job_id))
        try:
            steps = await asyncio.to_thread(copy_checkpoint, *folders)
        except NoCheckpointError as error:
            return 0.0, f"start_from: no checkpoint of job {source}: {error}"
        except OSError as error:
            log.warning("checkpoint.copy-failed", job=job_id, source=source, error=str(error))
            return 0.0, f"start_from: cannot copy the checkpoint of job {source}: {error.strerror}"
        return steps, ""
