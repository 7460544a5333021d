"""Lists of jobs: filter, search, order and page."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from pydantic_core import to_json

from fairlead.live.copies.reports import reported_progress
from fairlead.live.driver import Live
from fairlead.model.arrays import BoolArray
from fairlead.server.api.job_messages import State
from fairlead.server.api.views import job_row, listed

Order = Literal["submitted", "name", "tenant", "workload", "state", "priority", "progress"]
_Key = Callable[[Live, int], Any]
_RECENT_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuery:
    """The jobs to list, their order, and the part of the list to return."""

    state: State | None = None
    unended: bool = False
    name: str | None = None
    """pattern such as lr-*"""
    multijob: str | None = None
    search: str = ""
    """text in the id, name, tenant, workload or accelerator"""
    after: int = 0
    """number of the first job"""
    sort: Order | None = None
    descending: bool = False
    offset: int = 0
    """jobs to skip, in the order of the list"""
    limit: int = 1000
    newest: bool = False
    """return the last jobs instead of the first"""
    count: bool = False
    """count all matching jobs"""


class JobPage(NamedTuple):
    """A part of a list of jobs."""

    rows: list[dict[str, Any]]
    """fields of JobView"""
    total: int | None
    """number of all matching jobs, if they were counted"""


class SentPage(NamedTuple):
    """A part of a list of jobs as JSON."""

    body: bytes
    total: int | None


class RecentPages:
    """Counted pages of the last half second: after an event all open browsers ask for one."""

    def __init__(self) -> None:
        self._version: tuple[int, int] = (0, 0)
        self._since = 0.0
        self._pages: dict[tuple[bytes, JobQuery], SentPage] = {}

    def page(self, live: Live, tenants: BoolArray, query: JobQuery) -> SentPage:
        """Return the part of the list that a query asks for, of these tenants' jobs."""
        if not query.count:
            return _sent(list_page(live, tenants, query))
        version, now = (live.journal.seq, live.stream.published), live.clock.now()
        if version != self._version or now - self._since > _RECENT_S:
            self._version, self._since = version, now
            self._pages.clear()
        key = tenants.tobytes(), query
        if key not in self._pages:
            self._pages[key] = _sent(list_page(live, tenants, query))
        return self._pages[key]


def _sent(page: JobPage) -> SentPage:
    # The rows match JobView; validating a thousand of them would take most of the time.
    return SentPage(to_json(page.rows), page.total)


def list_page(live: Live, tenants: BoolArray, query: JobQuery) -> JobPage:
    """Return the part of the list that a query asks for, of these tenants' jobs."""
    numbers = _select(live, tenants, query)
    if query.descending or query.newest:
        numbers.reverse()
    matching: Iterable[int] = filter(_matcher(live, query), numbers)
    if query.sort in _KEYS:
        key = partial(_KEYS[query.sort], live)
        matching = sorted(matching, key=key, reverse=query.descending)
    rows: list[dict[str, Any]] = []
    total = 0
    for total, number in enumerate(matching, start=1):
        if query.offset < total <= query.offset + query.limit:
            rows.append(job_row(live, number))
        elif len(rows) == query.limit and not query.count:
            break
    if query.newest:
        rows.reverse()
    return JobPage(rows, total if query.count else None)


def _select(live: Live, tenants: BoolArray, query: JobQuery) -> list[int]:
    """Return the jobs in the wanted states, by submission, or by state if the query says so."""
    states = [query.state]
    if query.sort == "state" and query.state is None:
        states = [*get_args(State)]
    parts = (listed(live, tenants, state, query.after, unended=query.unended) for state in states)
    return [number for part in parts for number in part.tolist()]


def _matcher(live: Live, query: JobQuery) -> Callable[[int], bool]:
    """Return the condition of a query; it is asked of every job, so it looks at little first."""
    queries, specs, text = live.queries, live.specs, query.search.casefold()
    # Only running jobs have an accelerator, and only searches for one need it.
    fitting = {name for name in live.scheduler.cluster.accelerators if text in name.casefold()}

    def matches(number: int) -> bool:
        spec = specs.get(queries.job_id(number))
        if spec is None:  # no longer kept
            return False
        if query.multijob not in (None, queries.job(number).multijob):
            return False
        if query.name is not None and not fnmatchcase(spec.name, query.name):
            return False
        if text in f"{spec.id}\n{spec.name}\n{spec.tenant}\n{spec.workload}".casefold():
            return True
        return bool(fitting) and queries.accelerator_of(number) in fitting

    return matches


def _progress(live: Live, number: int) -> float:
    status = live.queries.job_status(number)
    steps = reported_progress(status, live.leases).steps
    return steps / (live.specs[status.id].steps or np.inf)


_KEYS: dict[str | None, _Key] = {
    "name": lambda live, number: live.specs[live.queries.job_id(number)].name.casefold(),
    "tenant": lambda live, number: live.queries.job(number).tenant,
    "workload": lambda live, number: live.queries.job(number).workload.casefold(),
    "priority": lambda live, number: live.queries.job(number).priority,
    "progress": _progress,
}
"""order → key of a job; without one, and for equal keys, the submission decides"""
