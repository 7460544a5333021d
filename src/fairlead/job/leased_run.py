"""A training run under a lease: steps counted, state saved, devices given up in time."""

import pickle
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
from fairlead.job.exit_status import FAILED_TO_SAVE, LEFT, REFUSED
from fairlead.job.gang_exit import GangExit
from fairlead.job.lease import Lease
from fairlead.job.run import Run, T

_BEHIND_S = 1.0
_MOST_METRICS = 100


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
        self._pace = _Pace(float(get("FAIRLEAD_EMULATED_STEPS_PER_S", "0")))
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
            parting=GangExit(self._directory, lease, self.rank, self.world_size)
            if self.world_size > 1
            else None,
        )
        self._lease.on_speed = self._pace.set_speed
        self._lease.on_untrusted_server = _say
        self._restore()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_signal)
        self._lease.begin(self.steps_done)

    def _restore(self) -> None:
        found = checkpoint.latest(self._directory)
        if found is None:
            return
        payload = checkpoint.read(self._directory, self.rank)
        assert payload is not None
        self._saved = pickle.loads(payload)
        self.steps_done = self._skip = found.steps
        failpoints.point("job.restored")

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._lease.check_now()

    def register(self, **things: Any) -> None:
        """Name what makes up the run's state; what an earlier checkpoint holds is restored."""
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
        """Show figures such as the loss beside the job's progress."""
        super().report(**metrics)
        shown = self._lease.metrics
        for name, value in metrics.items():
            if name in shown or len(shown) < _MOST_METRICS:  # more the server does not keep
                shown[name] = float(value)

    def checkpoint(self) -> None:
        """Save the state: now, or when the step ends that is being made.

        All members of a gang must call this in or after the same step.
        """
        if self._in_step:
            # Its own work on the step may be half done: only afterwards do state and count agree.
            self._save_after_step = True
        else:
            self._save_or_raise()

    def _save(self) -> None:
        state = {
            name: thing if isinstance(thing, dict) else thing.state_dict()
            for name, thing in self._registered.items()
        }
        steps, lease = self.steps_done, self._lease.number
        payload = pickle.dumps(state, protocol=pickle.HIGHEST_PROTOCOL)
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
        """Yield one item for each step still to make; leave when the lease ends."""
        iterator = iter(items)
        while self._skip and next(iterator, self) is not self:
            self._skip -= 1  # steps that the checkpoint holds already
        lease, pace = self._lease, self._pace
        while self._total is None or self.steps_done < self._total:
            item: Any = next(iterator, self)
            if item is self:
                break
            if not lease.may_start():
                self._leave()
            pace.begin()
            self._in_step = True
            yield item
            self._in_step = False
            pace.end()
            self.steps_done += 1
            lease.steps = self.steps_done
            lease.last_step_at = now = time.monotonic()
            due = self.world_size == 1 and now - self._saved_at > self._every_s
            if due or self._save_after_step:
                self._save_or_raise()
        # Done only when it is saved: without room the steps are made again under a later lease.
        self._save_or_leave()
        if self._total is not None and self.steps_done >= self._total:
            lease.close()

    def _save_or_raise(self) -> None:
        self._save_after_step = False
        try:
            self._save()
        except checkpoint.FencedError as error:
            self._exit(REFUSED, f"refused: {error}")
        except OSError as error:
            # Steps go on: the next checkpoint may find room again.
            _say(f"no checkpoint at step {self.steps_done}: {error}")
            self._saved_at = time.monotonic()

    def _leave(self) -> NoReturn:
        if self._lease.lost:
            self._exit(REFUSED, "refused: the lease is over")
        self._save_or_leave()
        failpoints.point("job.leaves")
        self._exit(LEFT, f"left after step {self.steps_done}")

    def _save_or_leave(self) -> None:
        try:
            if self._lease.saved_steps < self.steps_done:
                self._save()
        except checkpoint.FencedError as error:
            self._exit(REFUSED, f"refused: {error}")
        except OSError as error:
            self._exit(FAILED_TO_SAVE, f"left without a checkpoint: {error}")

    def _exit(self, status: int, why: str) -> NoReturn:
        _say(why)
        if self._status_file:  # a shell around this process may hide its status
            with suppress(OSError), open(self._status_file, "w", encoding="ascii") as file:
                file.write(str(status))
        raise SystemExit(status)


class _Pace:
    """Slows steps down to the speed of an emulated accelerator; on a real one it does nothing."""

    def __init__(self, steps_per_s: float) -> None:
        self._step_s = 1.0 / steps_per_s if steps_per_s > 0 else 0.0
        self._due = 0.0

    def set_speed(self, steps_per_s: float) -> None:
        """Go on at another speed: somebody shares the emulated accelerator, or does so no more."""
        self._step_s = 1.0 / steps_per_s

    def begin(self) -> None:
        """Note when a step starts."""
        if self._step_s:
            now = time.monotonic()
            # Steps that took too long are made up for, but not a pause.
            if now - self._due > _BEHIND_S:
                self._due = now

    def end(self) -> None:
        """Wait until the step has taken as long as the emulated accelerator needs for it."""
        if self._step_s:
            self._due += self._step_s
            rest = self._due - time.monotonic()
            if rest > 0:
                time.sleep(rest)


def _say(what: str) -> None:
    """Write to the job's log what its owner should know."""
    sys.stderr.write(f"fairlead: {what}\n")
    sys.stderr.flush()
