"""Notifications of users: persisted with the end of their job, delivered at least once."""

import asyncio
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from fairlead.live.clock import Clock
from fairlead.live.inputs.inbox import Inbox
from fairlead.live.job_ends import delivery
from fairlead.live.job_ends.urls import AllowedUrls
from fairlead.model.errors import InputError
from fairlead.store import Change, Put, Remove, Store

log = structlog.get_logger("fairlead.live")

KIND = "notification"
_MAX_WAITING, _MAX_WAITING_PER_TENANT = 10_000, 1000
"""notifications that wait for delivery; further ones are dropped"""
_MAX_AT_ONCE = 8
_FIRST_RETRY_S, _MAX_RETRY_S = 1.0, 600.0
_KEEP_S = 86400.0
"""seconds after which an undelivered notification is dropped"""


@dataclass(slots=True)
class Notification:
    """One message to one URL."""

    id: str
    """the same at every attempt, so that its reader can drop repetitions"""
    tenant: str
    url: str
    body: Mapping[str, Any]
    made_at: float
    attempts: int = 0
    due_at: float = -math.inf

    def document(self) -> Put:
        """Return the document that persists it."""
        stored = {"tenant": self.tenant, "url": self.url, "body": self.body, "at": self.made_at}
        return Put(KIND, self.id, json.dumps(stored))


class Notifications:
    """Delivers notifications with backoff, one per tenant at a time.

    A tenant whose URL does not answer delays nobody else's notifications.
    """

    def __init__(self, allowed: AllowedUrls, clock: Clock, inbox: Inbox) -> None:
        self.allowed = allowed
        self._clock, self._inbox = clock, inbox
        self._waiting: dict[str, Notification] = {}
        """by id, in order of their making"""
        self._in_flight: dict[str, asyncio.Task[None]] = {}
        """tenant → delivery in progress"""
        self._changed = asyncio.Event()

    def restore(self, store: Store) -> None:
        """Take up the notifications that an earlier server has not delivered."""
        for id_, text in store.documents(KIND).items():
            try:
                stored = json.loads(text)
                url, body = str(stored["url"]), dict(stored["body"])
                made = Notification(id_, str(stored["tenant"]), url, body, float(stored["at"]))
            except (ValueError, TypeError, KeyError, RecursionError):
                self._inbox.post(lambda _: [], [Remove(KIND, id_)])
                continue
            self._waiting[id_] = made

    def accept(self, made: Notification) -> Change | None:
        """Return the document to persist before ``send``; None if too many wait."""
        waiting = Counter(other.tenant for other in self._waiting.values())
        if waiting.total() >= _MAX_WAITING or waiting[made.tenant] >= _MAX_WAITING_PER_TENANT:
            log.warning("notification.dropped", id=made.id, reason="too many wait")
            return None
        return made.document()

    def send(self, made: Notification) -> None:
        """Deliver a notification that is persisted."""
        self._waiting[made.id] = made
        self._changed.set()

    async def run(self) -> None:
        """Deliver notifications until cancelled."""
        try:
            while True:
                self._changed.clear()
                wait_s = self._begin_due()
                try:
                    async with asyncio.timeout(wait_s):
                        await self._changed.wait()
                except TimeoutError:
                    continue
        finally:
            for task in self._in_flight.values():
                task.cancel()

    def _begin_due(self) -> float | None:
        """Begin the deliveries that are due; return the seconds until the next one is."""
        now, next_at = self._clock.now(), math.inf
        for made in self._waiting.values():
            if made.tenant in self._in_flight:
                continue
            if made.due_at > now:
                next_at = min(next_at, made.due_at)
            elif len(self._in_flight) < _MAX_AT_ONCE:
                self._in_flight[made.tenant] = asyncio.create_task(self._deliver(made))
        return None if next_at == math.inf else next_at - now

    async def _deliver(self, made: Notification) -> None:
        try:
            await self._attempt(made)
        finally:
            self._in_flight.pop(made.tenant, None)
            self._changed.set()

    async def _attempt(self, made: Notification) -> None:
        made.attempts += 1
        headers = {"Fairlead-Notification": made.id}
        try:
            target = self.allowed.check(made.url)
            await delivery.post(target, headers, json.dumps(made.body).encode())
        except (InputError, delivery.RefusedError) as error:
            log.warning("notification.refused", id=made.id, reason=str(error))
        except Exception as error:  # the next attempt must wait in any case
            now = self._clock.now()
            if now - made.made_at < _KEEP_S:
                log.info("notification.retried", id=made.id, reason=str(error))
                backoff_s = _FIRST_RETRY_S * 2 ** min(made.attempts - 1, 20)
                made.due_at = now + min(backoff_s, _MAX_RETRY_S)
                return
            log.warning("notification.dropped", id=made.id, reason=str(error))
        else:
            log.info("notification.delivered", id=made.id, attempts=made.attempts)
        self._waiting.pop(made.id, None)
        self._inbox.post(lambda _: [], [Remove(KIND, made.id)])
