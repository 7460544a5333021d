"""Journal of a live scheduler: persists its events and states, and restores it from them."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from fairlead import failpoints
from fairlead.core import Scheduler, decode_event, load_state, save_state
from fairlead.live.accounting import JobCounters
from fairlead.live.clock import Clock
from fairlead.live.executors import Workers
from fairlead.live.scheduling_config import SavedState, SchedulingConfig
from fairlead.model.errors import FairleadError, ProtocolError
from fairlead.model.events import Event
from fairlead.store import Change, DamagedLogError, Store

log = structlog.get_logger("fairlead.live")

_EVENTS_PER_STATE, _BYTES_PER_STATE = 5000, 4 << 20
"""events and bytes after which the state is saved: a restart replays them within a second"""


class Journal:
    """Writes batches of events and, from time to time, the whole state.

    The scheduler is ahead of the store while a batch is handled. If the store fails, the process
    must end: the next one starts from the persisted state.
    """

    def __init__(
        self,
        store: Store,
        token: int,
        scheduler: Scheduler[Any],
        counters: JobCounters,
        *,
        config: SchedulingConfig,
        workers: Workers,
        clock: Clock,
    ) -> None:
        self._store, self._token = store, token
        self._scheduler, self._counters = scheduler, counters
        self._config_name, self._workers, self._clock = config.name, workers, clock
        self.seq = 0
        """number of the last persisted event"""
        self._saved_seq = 0
        self._unsaved_bytes = 0
        """bytes of events since the last saved state"""
        self._has_uncommitted = False

    def restore(self, saved: SavedState, handle: Callable[[Event], object]) -> float:
        """Load the last state and replay the events after it; return the last event's time."""
        self.seq, last_at = saved.seq, 0.0
        if saved.state is not None:
            load_state(self._scheduler, saved.state["core"])
            self._counters.restore(saved.state["ledger"])
            last_at = saved.state["at"]
        saved.state = None
        self._saved_seq = self.seq
        memory_type = type(self._scheduler.memory)
        for record in self._store.load_events(self.seq):
            try:
                event = decode_event(record.body, memory_type)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                problem = f"event {record.seq} of the log is damaged ({error})"
                raise DamagedLogError(problem, accepted=self.seq) from None
            try:
                handle(event)
            except FairleadError as error:
                raise ProtocolError(
                    f"event {record.seq} of the log cannot be replayed ({error}): another version"
                    " of Fairlead wrote it after its last saved state; start that version once"
                    " more and stop it with SIGTERM, so that it saves a state every version reads"
                ) from None
            self.seq, last_at = record.seq, event.at
            self._unsaved_bytes += len(record.body)
        return last_at

    def begin_batch(self) -> None:
        """Note that the scheduler handles events that are not persisted yet."""
        self._has_uncommitted = True

    async def commit(self, bodies: Sequence[str], changes: Sequence[Change]) -> None:
        """Persist the encoded events of a batch and its document changes in one transaction."""
        if bodies or changes:
            failpoints.point("server.commit.before")
            first = self.seq + 1
            await self._workers.write(self._store.append, self._token, first, bodies, changes)
            self.seq += len(bodies)
            self._unsaved_bytes += sum(map(len, bodies))
            failpoints.point("server.commit.after")
        self._has_uncommitted = False

    async def save_state_if_due(self) -> None:
        """Save the state if the log has grown long; inputs wait, so the state stays the same."""
        many = self.seq - self._saved_seq >= _EVENTS_PER_STATE
        if many or self._unsaved_bytes >= _BYTES_PER_STATE:
            await self._workers.write(self._write_state)
            failpoints.point("server.state.after")
            self._saved_seq, self._unsaved_bytes = self.seq, 0

    def save_state(self, changes: Sequence[Change] = ()) -> None:
        """Save the state now, and apply changes in the same transaction."""
        self._write_state(changes)
        self._saved_seq, self._unsaved_bytes = self.seq, 0

    async def switch_config(self, config: SchedulingConfig, changes: Sequence[Change]) -> None:
        """Save the state under another config, with changes; later events are logged under it.

        The scheduler must have handled no event since the last commit but have the config.
        """
        self._has_uncommitted, self._config_name = True, config.name
        await self._workers.write(self.save_state, [config.document, *changes])
        self._has_uncommitted = False

    def save_final_state(self) -> None:
        """Save the state at shutdown, so that the next version need not replay events."""
        if self._has_uncommitted or self.seq == self._saved_seq:
            return
        try:
            self._write_state()
        except Exception as error:  # the log is complete, so no event is lost
            log.warning("state.unwritten", error=str(error))

    def _write_state(self, changes: Sequence[Change] = ()) -> None:
        body = {
            "rules": self._config_name,
            "core": save_state(self._scheduler),
            "ledger": self._counters.saved(),
            "at": self._clock.now(),
        }
        self._store.save_state(self._token, self.seq, json.dumps(body), changes)
