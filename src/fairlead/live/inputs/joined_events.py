"""Events of one request: idle devices are used once, after the last of them."""

from collections.abc import Sequence
from dataclasses import replace

from fairlead.model import events as ev


def joined(events: Sequence[ev.Event]) -> list[ev.Event]:
    """Return events that start no job which a later one of them cancels or holds.

    It also saves the search for idle devices after each of many events.
    """
    later: list[ev.Event] = []
    is_last = True
    for event in reversed(events):
        if isinstance(event, ev.JobSubmitted) and event.held:
            later.append(event)  # uses no devices
        elif isinstance(event, ev.JobSubmitted | ev.JobCancelled | ev.JobHeld | ev.JobReleased):
            later.append(event if is_last else replace(event, more=True))
            is_last = False
        else:
            later.append(event)
    return later[::-1]
