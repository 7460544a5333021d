"""Routes for hyperparameter searches, for those who may see their jobs."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query

from fairlead.live.driver import Live
from fairlead.live.job_spec import JobSpec
from fairlead.server.access.authorization import CurrentPrincipal, LiveDependency, NotFoundError
from fairlead.server.access.tokens import Principal
from fairlead.server.api.searches.messages import SearchTrials, SearchView, TrialPoint, TrialView
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
    return [_view(live, key, visible[key]) for key in newest[:_MAX_SEARCHES]]


@searches.get("/trials")
async def search_trials(
    live: LiveDependency,
    principal: CurrentPrincipal,
    tenant: Annotated[str, Query(max_length=128)],
    name: Annotated[str, Query(max_length=128)],
    metric: Annotated[str | None, Query(max_length=128)] = None,
) -> SearchTrials:
    """Return the trials of a search with the values of a metric, by default the first one."""
    key = _Key(tenant, name)
    specs = _visible(live, principal).get(key)
    if specs is None:
        raise NotFoundError(f"no search {name!r} of tenant {tenant!r}")
    view = _view(live, key, specs)
    shown = metric if metric is not None else next(iter(view.metrics), None)
    trials = [await _trial(live, spec, shown) for spec in specs[-_MAX_TRIALS:]]
    return SearchTrials(search=view, metric=shown, trials=trials)


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


async def _trial(live: Live, spec: JobSpec, metric: str | None) -> TrialView:
    row = job_row(live, live.queries.job_number(spec.id))
    points: list[TrialPoint] = []
    if metric in row["metrics"]:
        stored = (await live.history.history(spec.id)).metrics.get(metric or "")
        reports = [] if stored is None else [*stored.points()]
        # Every n-th report and the last one: the curve keeps its ends.
        step = -(-len(reports) // _MAX_POINTS) or 1
        kept = reports[::-1][::step][::-1]
        points = [TrialPoint.model_construct(**report._asdict()) for report in kept]
    fields = {name: row[name] for name in TrialView.model_fields if name in row}
    return TrialView.model_construct(**fields, job=spec.id, points=points)
