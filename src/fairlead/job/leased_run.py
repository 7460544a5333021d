"""A training run under a lease: counts steps, saves state, gives up its devices in time."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, NoReturn

from fairlead import failpoints
from fairlead.block_file import Payload
from fairlead.job import checkpoint
from fairlead.job.copies.averaging import restored_state
from fairlead.job.copies.part import CopyPart
from fairlead.job.emulated_speed import EmulatedSpeed
from fairlead.job.exit_status import EXIT_FENCED, EXIT_PREEMPTED, EXIT_SAVE_FAILED
from fairlead.job.gang_exit import GangExit
from fairlead.job.keeper.parking import Parking
from fairlead.job.lease import Lease
from fairlead.job.registration import RegisteredState
from fairlead.job.resizing import Resizing
from fairlead.job.run import Run, T
from fairlead.job.saving.commit import Made, save
from fairlead.job.saving.memory_file import MemoryFile
from fairlead.job.saving.saver import Saver
from fairlead.job.status_file import StatusFile

_MAX_METRICS = 100
"""metrics that the server keeps for one job"""
_LOOK_S = 1.0
"""seconds between two looks at the handler of SIGTERM, which cost a few microseconds"""
_EMULATED_SPEED = "FAIRLEAD_EMULATED_STEPS_PER_S"

_Chunks = Sequence[Payload]


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
        self._status = StatusFile(get("FAIRLEAD_STATUS_FILE"))
        self._total = int(get("FAIRLEAD_STEPS", "0")) or None
        self._every_s = float(get("FAIRLEAD_CHECKPOINT_S", "300"))
        self._emulated_speed = EmulatedSpeed(float(get(_EMULATED_SPEED, "0")))
        self._copy = CopyPart.of(environment)
        self.copy = self._copy.number if self._copy else 0
        self._own_steps = 0
        """steps that count for the lease: all of the job's, or those of this copy"""
        self._state = RegisteredState()
        self._saver = Saver(self._directory, environment)
        self._epoch = {"number": 0, "began_at": 0}
        self._in_epochs, self._is_last_epoch = False, True
        self._skip = 0
        self._in_step = self._save_after_step = self._has_left = False
        self._handles_stop, self._look_at = True, 0.0
        """no other handler of SIGTERM than the library's was seen; time of the next look"""
        self._resizing = Resizing(self._state)
        self._saved_at = time.monotonic()
        self.lease = lease
        self._lease = self._make_lease(lease, environment)
        self._restore()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_signal)
        self._lease.begin(self._own_steps)
        self._parking = Parking.of(environment, self._check_lease)

    def _make_lease(self, lease: int, environment: Mapping[str, str]) -> Lease:
        gang = self.world_size > 1
        return Lease(
            environment["FAIRLEAD_URL"],
            lease,
            environment["FAIRLEAD_JOB_TOKEN"],
            rank=self.rank,
            valid_s=float(environment.get("FAIRLEAD_LEASE_S", "60")),
            gang_exit=GangExit(self._directory, lease, self.rank, self.world_size)
            if gang
            else None,
            on_speed=self._emulated_speed.set_speed,
            on_untrusted_server=_print_to_log,
        )

    def _restore(self) -> None:
        directory = self._copy.base_directory if self._copy else self._directory
        committed = checkpoint.latest(directory)
        if committed is None:
            return
        self._state.saved = restored_state(directory, committed, self.rank)
        ranks = committed.ranks
        if ranks != self.world_size:
            read = partial(checkpoint.read_all, directory, committed)
            self._state.resize(read, new_rank=self.rank if self.rank >= ranks else None)
        self.steps_done = self._skip = committed.steps
        self._state.behind = committed.items_behind
        if self._copy:
            self._copy.position = committed.steps
        else:
            self._own_steps = committed.steps
        failpoints.point("job.restored")

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._look_at_handler()
        self._check_lease()

    def _check_lease(self) -> None:
        self._lease.check_now()

    def register(self, **things: Any) -> None:
        """Name the objects that make up the run's state, and restore them from a checkpoint."""
        for name, thing in things.items():
            self._state.add(name, thing)

    def on_resize(self, call: Callable[[], object] = lambda: None) -> None:
        """Let this process continue when its gang changes size; ``call`` runs after each."""
        self._resizing.calls.append(call)

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
        if self._in_step or not self._is_last_epoch:
            # The step may be half done: only at its end do state and step count agree. Between
            # epochs the next step's end is the first place from which the program can continue.
            self._save_after_step = True
        else:
            if not self._in_epochs:
                self._state.mark()
            self._save_or_raise(behind=False)

    def _save(self, *, behind: bool = False) -> None:
        """Save the state; with ``behind`` return once its tensors are copied."""
        self._saver.writer.wait()
        chunks = self._saver.encode(self._state.state_dicts())
        spare = self._saver.take_spare()
        failpoints.point("job.checkpoint.before")
        made = self._made(self._own_steps)
        if behind and len(chunks) > 1:
            self._saver.writer.begin(partial(self._write_behind, made, chunks, spare))
            self._saved_at = time.monotonic()
        else:
            self._write(made, chunks, spare)

    def _made(self, steps: int) -> Made:
        past = (self.steps_done,) if self._copy else ()
        return Made(self._lease.number, self.rank, self.world_size, steps, past)

    def _write_behind(self, made: Made, chunks: _Chunks, spare: MemoryFile | None) -> None:
        try:
            self._write(made, chunks, spare)
        except OSError as error:
            _print_to_log(f"no checkpoint at step {made.steps}: {error}")

    def _write(self, made: Made, chunks: _Chunks, spare: MemoryFile | None) -> None:
        save(self._directory, made, chunks, spare)
        self._lease.saved_steps = made.steps
        self._saved_at = time.monotonic()

    def epochs(self, count: int) -> Iterator[int]:
        """Yield the number of each remaining epoch, from 0; the last one may be resumed inside."""
        self._state.add("fairlead.epoch", self._epoch)
        self._state.continue_epoch()
        self._skip = max(min(self._skip, self.steps_done - self._epoch["began_at"]), 0)
        self._in_epochs = True
        for epoch in range(self._epoch["number"], count):
            if self._is_complete():
                break
            if epoch > self._epoch["number"]:
                behind = self._state.behind if self._state.has_position else self._skip
                self._epoch.update(number=epoch, began_at=self.steps_done - behind)
            self._is_last_epoch = epoch == count - 1
            try:
                yield epoch
            except GeneratorExit:  # the program ends its loop early, or an error does
                self._is_last_epoch = True
                if not (self._in_step or self._has_left):
                    self._save_or_leave()
                raise

    def steps(self, items: Iterable[T]) -> Iterator[T]:
        """Yield one item per remaining step; leave when the lease ends."""
        if self._parking is not None:
            self._parking.enter()
        self._state.begin()
        self._look_at_handler()
        self._resizing.items = items
        if self._parking is not None and self._resizes():
            self._parking.declare_resizing()
        iterator, self._skip = self._state.skip(iter(items), self._skip)
        if self._copy:
            iterator = self._copy.own_items(iterator)
        self._state.mark()
        while not self._is_complete():
            item: Any = next(iterator, self)
            if item is self:
                break
            self.begin_step()
            if self._resizing.is_item_obsolete():
                iterator = iter(items)
                item = next(iterator)
            yield item
            self.end_step()
        if self._is_last_epoch or self._is_complete():
            self.finish()

    def start(self) -> None:
        """Continue from the checkpoint, before a framework fetches its first item."""
        if self._copy:
            raise RuntimeError("max_copies: a framework owns the loop: expected run.steps(…)")
        self._state.begin()
        self._look_at_handler()
        self._state.continue_epoch()
        self._state.mark()

    def begin_step(self) -> None:
        """Start a step; leave if the lease ends."""
        while not self._lease.may_start():
            self._leave()
        self._emulated_speed.begin_step()
        self._in_step = True

    def end_step(self) -> None:
        """Count a step as done; save the state if it is time."""
        self._in_step = False
        self._emulated_speed.end_step()
        self._own_steps += 1
        self.steps_done = self._copy.position if self._copy else self._own_steps
        # The next item may be fetched in vain, if the lease ends before its step: a checkpoint
        # holds positions as they are now.
        self._state.mark()
        self._lease.steps = self._own_steps
        self._lease.last_step_at = now = time.monotonic()
        if now >= self._look_at:
            self._look_at_handler()
        due = self.world_size == 1 and now - self._saved_at > self._every_s
        if due or self._save_after_step:
            self._save_or_raise()
        else:
            self._saver.step_done(self._state.state_dicts)

    def finish(self) -> None:
        """Save the state after the last step.

        The job is done only once it is saved: if that fails a later lease repeats the steps.
        """
        self._save_or_leave()
        if self._copy and (self._copy.fetched or self._is_complete()):
            # The job itself runs the rest of the program.
            self._exit(EXIT_PREEMPTED, f"copy {self.copy} left after {self._own_steps} steps")
        if self._is_complete():
            self._lease.close()

    def note_exit(self) -> None:
        """Note that the program exits by itself, not because of a stop: 0 then means done."""
        # Another signal handler may have ended the loop at a stop. A copy never ends its job.
        self._look_at_handler()
        if self._handles_stop and not (self._has_left or self._copy):
            # The interpreter takes the handler away before it ends: a stop would kill it.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self._status.note_own_exit(self._own_steps)

    def _look_at_handler(self) -> None:
        # Programs and frameworks may take the handler for their loops only, and give it back.
        self._handles_stop &= signal.getsignal(signal.SIGTERM) == self._on_signal
        self._look_at = time.monotonic() + _LOOK_S

    def _is_complete(self) -> bool:
        if self._copy and self._own_steps >= self._copy.steps:
            return True
        return self._total is not None and self.steps_done >= self._total

    def _save_or_raise(self, *, behind: bool = True) -> None:
        self._save_after_step = False
        try:
            self._save(behind=behind)
        except checkpoint.FencedError as error:
            self._exit(EXIT_FENCED, f"refused: {error}")
        except OSError as error:
            # Training continues: the next checkpoint may succeed.
            _print_to_log(f"no checkpoint at step {self.steps_done}: {error}")
            self._saved_at = time.monotonic()

    def _leave(self) -> None:
        """Give up the device; return under the next lease, or not at all."""
        if self._lease.lost:
            self._exit(EXIT_FENCED, "refused: the lease has ended")
        parking, environment = self._parking, None
        if parking is not None and self._lease.was_preempted and not self._copy:
            environment = self._park(parking)
        else:
            if parking is not None and self.world_size > 1:  # the others might wait for its answer
                parking.refuse("a member leaves without its server")
            self._save_or_leave()
        if environment is None:
            failpoints.point("job.leaves")
            self._exit(EXIT_PREEMPTED, f"left after step {self.steps_done}")
        assert parking is not None
        self._continue(parking, environment)

    def _continue(self, parking: Parking, environment: Mapping[str, str]) -> None:
        """Train on under the lease that variables describe."""
        self._emulated_speed.set_speed(float(environment.get(_EMULATED_SPEED, "0")))
        position = int(environment["FAIRLEAD_RANK"]), int(environment["FAIRLEAD_WORLD_SIZE"])
        is_resized = position != (self.rank, self.world_size)
        self.rank, self.world_size = position
        self.lease = int(environment["FAIRLEAD_LEASE"])
        self._lease = self._make_lease(self.lease, environment)
        self._lease.begin(self._own_steps)
        parking.join(environment)
        failpoints.point("job.park.joined")
        if is_resized:
            self._resizing.follow(*position)
        self._saved_at = time.monotonic()

    def _park(self, parking: Parking) -> Mapping[str, str] | None:
        """Wait without the device for the next lease's variables; None: the process must exit.

        The state is saved in any case, after the device is free.
        """
        sys.stdout.flush()
        self._saver.stop()
        host = self._saver.host_memory()
        with self._leaving_on_failure():
            self._saver.writer.wait()  # it reads the host memory
        if not parking.ask(host, in_gang=self.world_size > 1, resizes=self._resizes()):
            self._save_or_leave()
            return None
        states, parked = self._state.state_dicts(), False
        with self._leaving_on_failure():
            chunks = self._saver.encode(states)
        unsaved = self._own_steps if self._lease.saved_steps < self._own_steps else None
        try:
            parking.leave_device(states, host, unsaved=unsaved)
            parked = True
        except (RuntimeError, MemoryError, OSError) as error:  # no host memory is left
            _print_to_log(f"cannot stay without the device: {error}")
        if unsaved is not None:
            with self._leaving_on_failure():
                self._write(self._made(unsaved), chunks, self._saver.take_spare())
        environment = parking.wait_for_lease() if parked else None
        if environment is None:
            return None
        try:
            if host is not None:
                host.restore()
        except RuntimeError as error:  # no device memory is left
            _print_to_log(f"cannot return to the device: {error}")
            return None
        failpoints.point("job.park.resumed")
        return environment

    def _resizes(self) -> bool:
        return not self._copy and self._resizing.is_possible()

    def _save_or_leave(self) -> None:
        with self._leaving_on_failure():
            self._saver.writer.wait()
            if self._lease.saved_steps < self._own_steps:
                self._save()

    @contextmanager
    def _leaving_on_failure(self) -> Iterator[None]:
        """Exit if the state cannot be saved."""
        try:
            yield
        except checkpoint.FencedError as error:
            self._exit(EXIT_FENCED, f"refused: {error}")
        except OSError as error:
            self._exit(EXIT_SAVE_FAILED, f"left without a checkpoint: {error}")

    def _exit(self, status: int, reason: str) -> NoReturn:
        self._has_left = True
        _print_to_log(reason)
        self._status.write_status(status)
        raise SystemExit(status)


def _print_to_log(message: str) -> None:
    """Print a message for the job's owner to the job's log."""
    sys.stderr.write(f"fairlead: {message}\n")
    sys.stderr.flush()
