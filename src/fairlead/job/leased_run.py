"""A training run under a lease: counts steps, saves state, gives up its devices in time."""

import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

from fairlead import failpoints
from fairlead.job import checkpoint
from fairlead.job.exit_status import EXIT_FENCED, EXIT_PREEMPTED, EXIT_SAVE_FAILED
from fairlead.job.gang_exit import GangExit
from fairlead.job.lease import Lease
from fairlead.job.run import Run, T
from fairlead.job.state_format import decode_state, encode_state

_MAX_LAG_S = 1.0
"""longest lag behind an emulated speed that later steps make up for"""
_MAX_METRICS = 100
"""metrics that the server keeps for one job"""


class LeasedRun(Run):
    """A run under a lease."""

    def __init__(self, lease: int, environment: Mapping[str, str]) -> None:
        super().__init__()
        get = environment.get
        self.rank = int(get("FAIRLEAD_RANK", "0"))
        self.world_size = int(get("FAIRLEAD_WORLD_SIZE", "1"))
        self.accelerator = get("FAIRLEAD_ACCELERATOR")
        shared = environment["FAIRLEAD_CHECKPOINT_DIR"]
        self._directory: str = get("FAIRLEAD_NODE_CHECKPOINT_DIR") or shared
        self.checkpoint_dir = self._directory
        self._status_file = get("FAIRLEAD_STATUS_FILE")
        self._total = int(get("FAIRLEAD_STEPS", "0")) or None
        self._every_s = float(get("FAIRLEAD_CHECKPOINT_S", "300"))
        self._emulated_speed = _EmulatedSpeed(float(get("FAIRLEAD_EMULATED_STEPS_PER_S", "0")))
        self._registered: dict[str, Any] = {}
        self._saved: dict[str, Any] = {}
        self._skip = 0
        self._in_step = self._save_after_step = False
        self._saved_at = time.monotonic()
        self._lease = Lease(
            environment["FAIRLEAD_URL"],
            lease,
            environment["FAIRLEAD_JOB_TOKEN"],
            rank=self.rank,
            valid_s=float(get("FAIRLEAD_LEASE_S", "60")),
            gang_exit=GangExit(self._directory, lease, self.rank, self.world_size)
            if self.world_size > 1
            else None,
            on_speed=self._emulated_speed.set_speed,
            on_untrusted_server=_print_to_log,
        )
        self._restore()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_signal)
        self._lease.begin(self.steps_done)

    def _restore(self) -> None:
        committed = checkpoint.latest(self._directory)
        if committed is None:
            return
        payload = checkpoint.read(self._directory, self.rank)
        assert payload is not None
        self._saved = decode_state(payload)
        self.steps_done = self._skip = committed.steps
        failpoints.point("job.restored")

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._lease.check_now()

    def register(self, **things: Any) -> None:
        """Name the objects that make up the run's state, and restore them from a checkpoint."""
        super().register(**things)
        for name, thing in things.items():
            self._registered[name] = thing
            if name not in self._saved:
                continue
            state = self._saved.pop(name)
            if isinstance(thing, dict):
                thing.clear()
                thing.update(state)
            else:
                thing.load_state_dict(state)

    def report(self, **metrics: float) -> None:
        """Report metrics such as the loss, to be shown beside the job's progress."""
        super().report(**metrics)
        shown = self._lease.metrics
        for name, value in metrics.items():
            if name in shown or len(shown) < _MAX_METRICS:
                shown[name] = float(value)

    def checkpoint(self) -> None:
        """Save the state: now, or at the end of the current step.

        All members of a gang must call this in or after the same step.
        """
        if self._in_step:
            # The step may be half done: only at its end do state and step count agree.
            self._save_after_step = True
        else:
            self._save_or_raise()

    def _save(self) -> None:
        state = {
            name: thing if isinstance(thing, dict) else thing.state_dict()
            for name, thing in self._registered.items()
        }
        steps, lease = self.steps_done, self._lease.number
        payload = encode_state(state)
        failpoints.point("job.checkpoint.before")
        checkpoint.write(self._directory, lease, steps, self.rank, payload)
        failpoints.point("job.checkpoint.written")
        if self.rank == 0:
            checkpoint.commit(self._directory, lease, steps, self.world_size)
        elif not checkpoint.wait_for_commit(self._directory, lease, steps):
            checkpoint.require(self._directory, lease)
            raise TimeoutError("rank 0 did not commit the checkpoint")
        failpoints.point("job.commit.after")
        self._lease.saved_steps = steps
        self._saved_at = time.monotonic()

    def steps(self, items: Iterable[T]) -> Iterator[T]:
        """Yield one item per remaining step; leave when the lease ends."""
        iterator = iter(items)
        while self._skip and next(iterator, self) is not self:
            self._skip -= 1  # the checkpoint includes this step
        lease, emulated_speed = self._lease, self._emulated_speed
        while self._total is None or self.steps_done < self._total:
            item: Any = next(iterator, self)
            if item is self:
                break
            if not lease.may_start():
                self._leave()
            emulated_speed.begin_step()
            self._in_step = True
            yield item
            self._in_step = False
            emulated_speed.end_step()
            self.steps_done += 1
            lease.steps = self.steps_done
            lease.last_step_at = now = time.monotonic()
            due = self.world_size == 1 and now - self._saved_at > self._every_s
            if due or self._save_after_step:
                self._save_or_raise()
        # The job is done only once it is saved: if that fails a later lease repeats the steps.
        self._save_or_leave()
        if self._total is not None and self.steps_done >= self._total:
            lease.close()

    def _save_or_raise(self) -> None:
        self._save_after_step = False
        try:
            self._save()
        except checkpoint.FencedError as error:
            self._exit(EXIT_FENCED, f"refused: {error}")
        except OSError as error:
            # Training continues: the next checkpoint may succeed.
            _print_to_log(f"no checkpoint at step {self.steps_done}: {error}")
            self._saved_at = time.monotonic()

    def _leave(self) -> NoReturn:
        if self._lease.lost:
            self._exit(EXIT_FENCED, "refused: the lease has ended")
        self._save_or_leave()
        failpoints.point("job.leaves")
        self._exit(EXIT_PREEMPTED, f"left after step {self.steps_done}")

    def _save_or_leave(self) -> None:
        try:
            if self._lease.saved_steps < self.steps_done:
                self._save()
        except checkpoint.FencedError as error:
            self._exit(EXIT_FENCED, f"refused: {error}")
        except OSError as error:
            self._exit(EXIT_SAVE_FAILED, f"left without a checkpoint: {error}")

    def _exit(self, status: int, reason: str) -> NoReturn:
        _print_to_log(reason)
        if self._status_file:  # a shell around this process may hide its exit status
            with suppress(OSError), open(self._status_file, "w", encoding="ascii") as file:
                file.write(str(status))
        raise SystemExit(status)


class _EmulatedSpeed:
    """Slows steps down to the speed of an emulated accelerator; does nothing on a real one."""

    def __init__(self, steps_per_s: float) -> None:
        self._step_s = 1.0 / steps_per_s if steps_per_s > 0 else 0.0
        self._due = 0.0

    def set_speed(self, steps_per_s: float) -> None:
        """Continue at another speed: a partner came to the emulated accelerator, or left it."""
        self._step_s = 1.0 / steps_per_s

    def begin_step(self) -> None:
        """Start a step."""
        if self._step_s:
            now = time.monotonic()
            # Slow steps are made up for, a pause is not.
            if now - self._due > _MAX_LAG_S:
                self._due = now

    def end_step(self) -> None:
        """Wait until the step has taken as long as on the emulated accelerator."""
        if self._step_s:
            self._due += self._step_s
            rest = self._due - time.monotonic()
            if rest > 0:
                time.sleep(rest)


def _print_to_log(message: str) -> None:
    """Print a message for the job's owner to the job's log."""
    sys.stderr.write(f"fairlead: {message}\n")
    sys.stderr.flush()
