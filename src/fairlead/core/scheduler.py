"""The scheduler: events in, commands out; no side effects, no clock, no solver."""

import math

from fairlead.core.handlers import HANDLERS
from fairlead.core.launches import preempt, renew
from fairlead.core.scheduler_state import SchedulerState
from fairlead.mechanisms.base import M, Mechanism
from fairlead.model.capabilities import capabilities_of
from fairlead.model.commands import Command
from fairlead.model.events import Event
from fairlead.model.lease import NO_PLACEMENTS
from fairlead.model.speeds.table import SpeedTable
from fairlead.model.tenants.weight_scope import WeightScope


class Scheduler(SchedulerState[M]):
    """Keeps jobs, leases and the round, and turns each event into commands.

    A round lasts from the application of a plan to its ``until``. The next plan is requested
    ``plan_lead_s`` before that, so that leases whose devices stay the same are renewed in time;
    until a late plan arrives all leases continue (the interim plan).
    """

    def handle(self, event: Event) -> list[Command]:
        """Apply one event and return the commands to perform now; a rejected event has no effect.

        Handlers are functions of the state, one module per kind of event (``core/handlers``).
        """
        return HANDLERS[type(event)](self, event)

    def reconfigure(
        self,
        beliefs: SpeedTable,
        mechanism: Mechanism[M],
        plan_lead_s: float,
        weight_scope: WeightScope = "cluster",
        guaranteed_refills: bool = True,
        charges_idle: bool = False,
    ) -> list[Command]:
        """Continue under another mechanism or with other speeds, in a round that starts now.

        Returns the commands to perform now; the caller requests the first plan by ``PlanDue``.
        Preempts leases that only some mechanisms create: packed, forked, mixed, or of another
        size than the job's gang. Raises InputError, and changes nothing, if a job that has not
        ended could never run; jobs that already lost all devices they could run on are exempt.
        """
        believed = self.believed(beliefs)
        self.jobs.set_speeds(believed, capabilities_of(mechanism))
        self.configure(
            beliefs, mechanism, plan_lead_s, weight_scope, guaranteed_refills, charges_idle
        )
        self.create_snapshot_builder()
        self.end_round()
        self.pending, self.waiting = None, NO_PLACEMENTS
        self.left_out = ()
        self.changes += 1
        stopping = preempt(self, self.leases.nonstandard_slots)
        return [*stopping, *renew(self, math.inf)]
