"""Event stream of a live scheduler: notices for the subscribers of ``/v1/events`` and the log."""

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from fairlead.live.clock import Clock
from fairlead.model import events as ev

log = structlog.get_logger("fairlead.live")

_NOTICES: Mapping[type, Sequence[str]] = {
    **dict.fromkeys(
        (
            *(ev.NodeLost, ev.NodeDrained, ev.NodeReturned, ev.NodeAdded),
            *(ev.NodeRemoved, ev.NodeRestored, ev.NodeCordoned, ev.DevicesTaken),
        ),
        ("nodes.changed",),
    ),
    ev.TenantChanged: ("tenants.changed",),
    ev.LeasesEnded: ("leases.changed",),
    ev.StepsSaved: ("leases.changed",),
}
"""event → notices to all subscribers, which name neither jobs nor tenants"""


def notices_of(event: ev.Event) -> Sequence[str]:
    """Return the notices that an event causes once it is persisted."""
    return _NOTICES.get(type(event), ())


class EventStream:
    """Passes notices to all subscribers; a full subscriber loses its oldest notice."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.subscribers: set[asyncio.Queue[dict[str, object]]] = set()
        self.published = 0
        """number of notices so far"""

    def publish(self, event: str, **fields: object) -> None:
        """Pass a notice to all subscribers."""
        self.published += 1
        for subscriber in self.subscribers:
            if subscriber.full():
                subscriber.get_nowait()
            subscriber.put_nowait({"event": event, "at": self._clock.now(), **fields})

    def log_and_publish(self, event: str, **fields: object) -> None:
        """Write a notice to the server's log and pass it to all subscribers."""
        log.info(event, **fields)
        self.publish(event, **fields)
