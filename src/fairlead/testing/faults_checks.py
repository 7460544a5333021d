"""All that must hold whatever goes wrong, checked as things happen against what really did."""

from collections.abc import Callable

from fairlead.testing.faults_checks_core import CoreChecks
from fairlead.testing.faults_checks_jobs import JobChecks
from fairlead.testing.faults_checks_plans import PlanChecks
from fairlead.testing.faults_checks_said import SaidChecks
from fairlead.testing.faults_checks_server import ServerChecks
from fairlead.testing.faults_record import Record


class Checks(Record):
    """The record of a run and all that looks at it."""

    def __init__(self, stop: Callable[[], None], now: Callable[[], float]) -> None:
        super().__init__(stop, now)
        self.jobs = JobChecks(self)
        self.core = CoreChecks(self)
        self.said = SaidChecks(self)
        self.plans = PlanChecks(self)
        self.server = ServerChecks(self)
