"""Failed plans: counted by the plug-in that made them fail, which is named."""

from collections import Counter
from collections.abc import Sequence
from types import TracebackType

import structlog

from fairlead.live.executors import PlanTimeoutError, place_of
from fairlead.model.errors import UsageError
from fairlead.placement.contract import ContractViolationError
from fairlead.registry import PlugIn

log = structlog.get_logger("fairlead.live")

_MAX_IN_ROW = 2
"""failed plans in a row from which on the server is not ready"""


class PlanFailures:
    """Counts failed plans and refills, and tells whether planning works."""

    def __init__(self, plug_ins: Sequence[PlugIn]) -> None:
        self._plug_ins = plug_ins
        self.count_of: Counter[str] = Counter({plug_in.label: 0 for plug_in in plug_ins})
        """label of a plug-in → plans and refills that failed in it"""
        self._unrecovered = 0
        """plans in a row that could not be computed for any set of jobs"""
        self._problem_of: dict[str, str] = {}
        """plan or refill → description of its last failure, without a success since"""

    def use_plug_ins(self, plug_ins: Sequence[PlugIn]) -> None:
        """Blame other plug-ins from now on; the counts of earlier ones stay."""
        self._plug_ins, self._unrecovered = plug_ins, 0
        self._problem_of.clear()
        self.count_of.update({plug_in.label: 0 for plug_in in plug_ins})

    @property
    def total(self) -> int:
        """Plans and refills that failed."""
        return self.count_of.total()

    @property
    def failing(self) -> bool:
        """Whether the last plans could not be computed for any set of jobs."""
        return self._unrecovered >= _MAX_IN_ROW

    @property
    def problem(self) -> str:
        """The last failures, without values of jobs; empty after a success."""
        return "; ".join(self._problem_of.values())

    def record(self, error: BaseException, *, refill: bool = False, **context: object) -> None:
        """Count and log a failure, and name the plug-in in which it happened."""
        culprit = _culprit(self._plug_ins, error)
        work = "refill" if refill else "plan"
        named = "" if culprit is None else f" in {culprit}"
        self._problem_of[work] = f"a {work} failed{named}: {type(error).__name__}"
        # One traceback is enough: plans may fail with every event.
        log.error(
            f"{work}.failed",
            plugin=None if culprit is None else culprit.name,
            package=None if culprit is None else culprit.package,
            error=repr(error),
            exc_info=error if self.total == 0 else None,
            **context,
        )
        self.count_of["fairlead" if culprit is None else culprit.label] += 1

    def computed(self) -> None:
        """Record a plan that was computed at once."""
        self._unrecovered = 0
        self._problem_of.pop("plan", None)

    def refilled(self) -> None:
        """Record a refill without failure."""
        self._problem_of.pop("refill", None)

    def recovered(self) -> None:
        """Record a plan that was computed without some jobs."""
        self._unrecovered = 0

    def not_recovered(self) -> None:
        """Record that no plan could be computed."""
        self._unrecovered += 1
        log.error("plan.not_recovered", in_row=self._unrecovered)


def _culprit(plug_ins: Sequence[PlugIn], error: BaseException) -> PlugIn | None:
    """Return the plug-in in which an error happened; None if there are no plug-ins.

    Plug-ins of other packages come first: their code raised, returned nonsense or did not return.
    """
    outside = [plug_in for plug_in in plug_ins if not plug_in.built_in]
    if not outside:
        return plug_ins[0] if plug_ins else None
    blamed = None
    if isinstance(error, ContractViolationError):
        blamed = "mechanism"
    elif isinstance(error, UsageError):  # shares that no cluster could give
        blamed = "policy"
    for plug_in in outside:
        if plug_in.kind == blamed:
            return plug_in
    places = _places(error)
    for place in places:
        for plug_in in outside:
            if plug_in.target in place:
                return plug_in
    for place in places:
        for plug_in in outside:
            if plug_in.module.partition(".")[0] in place:
                return plug_in
    return outside[0]


def _places(error: BaseException) -> Sequence[frozenset[str]]:
    """Return the places in which an error happened, innermost first."""
    if isinstance(error, PlanTimeoutError):
        return error.places
    places: list[frozenset[str]] = []
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None:
        places.insert(0, place_of(traceback.tb_frame))
        traceback = traceback.tb_next
    return places
