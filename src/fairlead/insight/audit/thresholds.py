"""Limits on the figures of an audit, for assertions."""

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from fairlead.insight.audit.audit import Audit
from fairlead.insight.audit.witnesses import witness
from fairlead.model.errors import FairleadError, UsageError

FIGURES = (
    "envy",
    "pareto_slack",
    "sharing_incentive",
    "over_report",
    "under_report",
    "efficiency",
)
_TESTS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


class AuditError(FairleadError):
    """A figure of an audit that exceeds its limit."""

    code = "audit"


@dataclass(frozen=True, slots=True)
class Limit:
    """A condition under which an audit fails, such as ``envy>1e-6``."""

    figure: str
    test: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> "Limit":
        """Return the limit of a text such as ``envy>1e-6``; raise UsageError if malformed."""
        match = re.fullmatch(r"\s*([\w-]+)\s*(>=|<=|>|<)\s*(\S+)\s*", text)
        if not match:
            raise UsageError(
                f"--fail-if: not a condition: {text!r}: expected a figure, one of > >= < <= and a"
                " number, such as 'envy>1e-6'"
            )
        figure, test, bound = match.groups()
        figure = figure.replace("-", "_")
        if figure not in FIGURES:
            raise UsageError(
                f"--fail-if: unknown figure: {figure!r}: expected one of {', '.join(FIGURES)}"
            )
        try:
            number = float(bound)
        except ValueError:
            number = math.nan
        if math.isnan(number):
            raise UsageError(
                f"--fail-if: not a number: {bound!r} in {text!r}: expected a number such as 1e-6"
            )
        return cls(figure, test, number)

    def violation(self, audit: Audit) -> str | None:
        """Return one line with the figure and its witness if the condition holds, else None."""
        figures = audit.figures()
        if self.figure not in figures:
            raise UsageError(f"--fail-if: {self.figure} not measured: expected --lies above 0")
        value = figures[self.figure]
        if not _TESTS[self.test](value, self.bound):
            return None
        return (
            f"{audit.policy}: {self.figure} is {value:.6g}, {self.test} {self.bound:g}:"
            f" {witness(audit, self.figure)}"
        )
