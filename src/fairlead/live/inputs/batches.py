"""Batches of inputs: handled by the core, persisted, and only then acted on and answered."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import structlog

from fairlead import failpoints
from fairlead.core import encode_event
from fairlead.live.clock import Clock
from fairlead.live.event_stream import EventStream, notices_of
from fairlead.live.inputs.inbox import HandledBatch, Inbox, InboxItem
from fairlead.live.inputs.pieces import in_pieces
from fairlead.live.job_ends.ends import JobEnds
from fairlead.live.journal import Journal
from fairlead.model import commands as cmd
from fairlead.model import events as ev
from fairlead.model.errors import FairleadError
from fairlead.store import Change, StoreUnavailableError

log = structlog.get_logger("fairlead.live")

Perform = Mapping[type, Callable[[Any], None]]
"""kind of command → the call that carries it out"""


class BatchProcessor:
    """Takes waiting inputs through the core, the store and the engine, in this order."""

    def __init__(
        self,
        handle: Callable[[ev.Event], list[cmd.Command]],
        journal: Journal,
        ends: JobEnds,
        perform: Perform,
        on_performed: Callable[[HandledBatch], None],
        *,
        clock: Clock,
        inbox: Inbox,
        stream: EventStream,
    ) -> None:
        self._handle, self._journal, self._ends = handle, journal, ends
        self._perform, self._on_performed = perform, on_performed
        self._clock, self._inbox, self._stream = clock, inbox, stream

    async def process(self, first: InboxItem) -> None:
        """Handle waiting inputs, persist them, and only then act on them and answer."""
        batch = await self._handle_batch(first)
        try:
            await self._journal.commit(batch.bodies, batch.changes)
        except StoreUnavailableError as error:
            for item in batch.items:
                item.fail(error)
            self._inbox.fail_waiting(error)
            raise
        self._ends.committed()
        for command in batch.commands:
            self._perform[type(command)](command)
        self._on_performed(batch)
        failpoints.point("server.commit.performed")
        for notice in sorted(batch.notices):
            self._stream.publish(notice)
        for item in batch.items:
            item.succeed()
        await self._journal.save_state_if_due()

    async def _handle_batch(self, first: InboxItem) -> HandledBatch:
        """Take inputs through the core.

        Requests are served within a long input, where it says so; no other input is handled then.
        """
        batch, now = HandledBatch(), self._clock.now()
        self._journal.begin_batch()
        for item in self._inbox.batch(first):
            batch.items.append(item)
            try:
                events: AsyncIterator[ev.Event] = in_pieces(item.make(now))
                async for event in events:
                    batch.commands += self._handle(event)
                    batch.bodies.append(encode_event(event))
                    if isinstance(event, ev.LeasesEnded):
                        batch.ended += event.lease.tolist()
                    batch.notices.update(notices_of(event))
                changes: AsyncIterator[Change] = in_pieces(item.document_changes())
                async for change in changes:
                    batch.changes.append(change)
            except FairleadError as error:
                if not item.fail(error):
                    log.warning("event.refused", error=str(error))
        batch.changes += self._ends.changes()
        return batch
