"""Measured speeds of a live cluster: reports of jobs and requests of operators."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.core import Scheduler
from fairlead.core.queries import Queries
from fairlead.live.clock import Clock
from fairlead.live.inputs.inbox import Inbox
from fairlead.live.leases.open_leases import OpenLease
from fairlead.live.speeds.measurements import SpeedMeasurements
from fairlead.model import events as ev
from fairlead.model.errors import InputError
from fairlead.model.speeds.measured import Selection
from fairlead.store import Audit, User


class SpeedController:
    """Turns reports and requests into events; a request returns once it is persisted."""

    def __init__(
        self,
        scheduler: Scheduler[Any],
        leases: Mapping[int, OpenLease],
        clock: Clock,
        inbox: Inbox,
        *,
        learns: bool,
    ) -> None:
        self._measured, self._clock, self._inbox = scheduler.measured_speeds, clock, inbox
        self.measurements = SpeedMeasurements(Queries(scheduler), leases, enabled=learns)

    def lease_renewed(self, lease: int) -> None:
        """Believe the first measured speed of a lease at once; later ones wait for a plan."""
        if self.measurements.is_new(lease):
            self._inbox.post(self.measurements.events)

    async def forget(self, selection: Selection, user: User) -> int:
        """Drop measured speeds, so that jobs measure them again; return their number.

        Raises InputError, and changes nothing, if no measured speed is selected.
        """
        forgotten: list[int] = []

        def make(at: float) -> Sequence[ev.Event]:
            count = self._measured.count(selection)
            if not count:
                fix = "expected names that `fairlead speeds show` lists, or none for all"
                field = next((name for name, wanted in selection.wanted().items() if wanted), None)
                raise InputError("no such speed was measured", fix=fix, field=field)
            forgotten.append(count)
            return [ev.SpeedsForgotten(at, *selection)]

        audit = Audit(self._clock.now(), user, "forget speeds", selection.text())
        await self._inbox.submit(make, lambda: [audit])
        return forgotten[0]
