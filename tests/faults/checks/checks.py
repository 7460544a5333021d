"""All invariants, checked during a run against its ground truth."""

from collections.abc import Callable

from tests.faults.checks.commands import CommandChecks
from tests.faults.checks.copies import CopyChecks
from tests.faults.checks.core import CoreChecks
from tests.faults.checks.jobs import JobChecks
from tests.faults.checks.plans import PlanChecks
from tests.faults.checks.server import ServerChecks
from tests.faults.record import RunRecord


class Checks(RunRecord):
    """The record of a run with all its checks."""

    def __init__(self, stop: Callable[[], None], now: Callable[[], float]) -> None:
        super().__init__(stop, now)
        self.copies = CopyChecks(self)
        self.jobs = JobChecks(self, self.copies)
        self.core = CoreChecks(self, self.copies)
        self.commands = CommandChecks(self)
        self.plans = PlanChecks(self)
        self.server = ServerChecks(self)
