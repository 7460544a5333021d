"""An audit as an assertion: limits on its figures."""

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
    """A figure of an audit that is past its limit."""

    code = "audit"


@dataclass(frozen=True, slots=True)
class Limit:
    """A condition under which an audit fails, such as ``envy>1e-6``."""

    figure: str
    test: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> "Limit":
        """Return the limit that a text like ``envy>1e-6`` states; UsageError if it states none."""
        found = re.fullmatch(r"\s*([\w-]+)\s*(>=|<=|>|<)\s*(\S+)\s*", text)
        if not found:
            raise UsageError(
                f"--fail-if {text!r} is not a figure, one of > >= < <= and a number:"
                " --fail-if 'envy>1e-6'"
            )
        figure, test, bound = found.groups()
        figure = figure.replace("-", "_")
        if figure not in FIGURES:
            raise UsageError(
                f"--fail-if: an audit has no figure {figure!r}; choose one of {', '.join(FIGURES)}"
            )
        try:
            number = float(bound)
        except ValueError:
            number = math.nan
        if math.isnan(number):
            raise UsageError(f"--fail-if {text!r}: {bound!r} is not a number")
        return cls(figure, test, number)

    def broken(self, audit: Audit) -> str | None:
        """Return one line that names figure and witness when the condition holds, else None."""
        figures = audit.figures()
        if self.figure not in figures:
            raise UsageError(
                f"--fail-if {self.figure}: no lies were searched for; leave out --lies 0"
            )
        value = figures[self.figure]
        if not _TESTS[self.test](value, self.bound):
            return None
        return (
            f"{audit.policy}: {self.figure} is {value:.6g}, which is {self.test} {self.bound:g}:"
            f" {witness(audit, self.figure)}"
        )
