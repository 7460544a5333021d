"""Lists of jobs: filter, search, order and page."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from fairlead.live.driver import Live
from fairlead.model.arrays import BoolArray
from fairlead.server.api.job_messages import State
from fairlead.server.api.views import job_row, listed

Order = Literal["submitted", "name", "tenant", "workload", "state", "priority", "progress"]
_Key = Callable[[Live, int], Any]


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


def list_page(live: Live, tenants: BoolArray, query: JobQuery) -> JobPage:
    """Return the part of the list that a query asks for, of these tenants' jobs."""
    numbers = _select(live, tenants, query)
    if query.descending or query.newest:
        numbers.reverse()
    matching: Iterable[int] = (n for n in numbers if _matches(live, n, query))
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


def _matches(live: Live, number: int, query: JobQuery) -> bool:
    queries = live.queries
    spec = live.specs.get(queries.job_id(number))
    if spec is None:  # no longer kept
        return False
    if query.multijob not in (None, queries.job(number).multijob):
        return False
    if query.name is not None and not fnmatchcase(spec.name, query.name):
        return False
    if not query.search:
        return True
    accelerator = queries.accelerator_of(number) or ""
    texts = (spec.id, spec.name, spec.tenant, spec.workload, accelerator)
    return query.search.casefold() in "\n".join(texts).casefold()


def _progress(live: Live, number: int) -> float:
    status = live.queries.job_status(number)
    lease = None if status.lease is None else live.leases.get(status.lease)
    steps = max(status.steps, lease.steps if lease else 0.0)
    return steps / (live.specs[status.id].steps or np.inf)


_KEYS: dict[str | None, _Key] = {
    "name": lambda live, number: live.specs[live.queries.job_id(number)].name.casefold(),
    "tenant": lambda live, number: live.queries.job(number).tenant,
    "workload": lambda live, number: live.queries.job(number).workload.casefold(),
    "priority": lambda live, number: live.queries.job(number).priority,
    "progress": _progress,
}
"""order → key of a job; without one, and for equal keys, the submission decides"""
