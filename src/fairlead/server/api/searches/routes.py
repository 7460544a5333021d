"""Routes for hyperparameter searches, for those who may see their jobs."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query, Response
from pydantic_core import to_json

from fairlead.live.driver import Live
from fairlead.live.job_spec import JobSpec
from fairlead.server.access.authorization import CurrentPrincipal, LiveDependency, NotFoundError
from fairlead.server.access.tokens import Principal
from fairlead.server.api.searches.messages import SearchTrials, SearchView, TrialView
from fairlead.server.api.views import job_row

searches = APIRouter(prefix="/v1/searches", tags=["searches"])
_MAX_SEARCHES, _MAX_TRIALS, _MAX_POINTS = 200, 500, 200


class _Key(NamedTuple):
    tenant: str
    name: str


@searches.get("")
async def list_searches(live: LiveDependency, principal: CurrentPrincipal) -> list[SearchView]:
    """List the last 200 searches, the newest first."""
    visible = _visible(live, principal)
    newest = sorted(visible, key=lambda key: live.queries.job_number(visible[key][0].id))[::-1]
    views = []
    for key in newest[:_MAX_SEARCHES]:
        if specs := [spec for spec in visible[key] if spec.id in live.specs]:
            views.append(_view(live, key, specs))
        await asyncio.sleep(0)  # other requests need not wait for all searches
    return views


@searches.get("/trials", response_model=SearchTrials)
async def search_trials(
    live: LiveDependency,
    principal: CurrentPrincipal,
    tenant: Annotated[str, Query(max_length=128)],
    name: Annotated[str, Query(max_length=128)],
    metric: Annotated[str | None, Query(max_length=128)] = None,
) -> Response:
    """Return the trials of a search with the values of a metric, by default the first one."""
    key = _Key(tenant, name)
    specs = _visible(live, principal).get(key)
    if specs is None:
        raise NotFoundError(f"no search {name!r} of tenant {tenant!r}")
    view = _view(live, key, specs)
    shown = metric if metric is not None else next(iter(view.metrics), None)
    # All rows before any history: jobs may be removed meanwhile.
    rows = [job_row(live, live.queries.job_number(spec.id)) for spec in specs[-_MAX_TRIALS:]]
    trials = [_trial(row, await _points(live, row, shown)) for row in rows]
    result = {"search": view, "metric": shown, "trials": trials}
    # Validating a hundred thousand points would take most of the time.
    body = await asyncio.to_thread(to_json, result)
    return Response(body, media_type="application/json")


def _visible(live: Live, principal: Principal) -> dict[_Key, list[JobSpec]]:
    """Return search → its jobs in order of submission."""
    jobs: dict[_Key, list[JobSpec]] = {}
    for spec in live.specs.values():
        if spec.multijob is not None and principal.can_see(spec.tenant):
            jobs.setdefault(_Key(spec.tenant, spec.multijob), []).append(spec)
    return jobs


def _view(live: Live, key: _Key, specs: Sequence[JobSpec]) -> SearchView:
    """Return the counts of a search; a trial costs microseconds, for a search may have many."""
    queries, now = live.queries, live.clock.now()
    numbers = [queries.job_number(spec.id) for spec in specs]
    unended = [number for number in numbers if not queries.has_ended(number)]
    leases = {number: queries.job_status(number).lease for number in unended}
    metrics: set[str] = set()
    device_s = 0.0
    for spec, number in zip(specs, numbers, strict=True):
        lease = leases.get(number)
        device_s += live.counters.device_s_until(spec.id, lease, now)
        metrics.update(live.history.results.of(spec.id).metrics)
        if lease in live.leases:
            metrics.update(live.leases[lease].metrics)
    return SearchView(
        tenant=key.tenant,
        name=key.name,
        trials=len(specs),
        unended=len(unended),
        running=sum(1 for lease in leases.values() if lease is not None),
        device_hours=device_s / 3600.0,
        submitted_at=queries.job(numbers[0]).arrival_at,
        metrics=sorted(metrics),
    )


async def _points(live: Live, row: dict[str, Any], metric: str | None) -> list[dict[str, float]]:
    """Return the values of a metric as fields of TrialPoint."""
    if metric not in row["metrics"]:
        return []
    stored = (await live.history.history(row["id"])).metrics.get(metric or "")
    reports = [] if stored is None else [*stored.points()]
    # Every n-th report and the last one: the curve keeps its ends.
    step = -(-len(reports) // _MAX_POINTS) or 1
    return [report._asdict() for report in reports[::-1][::step][::-1]]


def _trial(row: dict[str, Any], points: list[dict[str, float]]) -> dict[str, Any]:
    """Return the fields of TrialView."""
    fields = {name: row[name] for name in TrialView.model_fields if name in row}
    return {**fields, "job": row["id"], "points": points}
