"""Routes for the history of jobs and for usage."""

from datetime import UTC, date, datetime
from typing import Annotated

from fastapi import APIRouter, Query

from fairlead.live.history.usage import DAY_S
from fairlead.model.errors import InputError
from fairlead.server.access.authorization import (
    CurrentPrincipal,
    LiveDependency,
    find_visible_job,
)
from fairlead.server.api import history_messages as msg

history = APIRouter(prefix="/v1", tags=["history"])
_EPOCH = date(1970, 1, 1).toordinal()
_MAX_DAY = date.max.toordinal() - _EPOCH


@history.get("/jobs/{job_id}/metrics")
async def job_metrics(
    job_id: str, live: LiveDependency, principal: CurrentPrincipal
) -> msg.JobMetrics:
    """Return the metrics that a job has reported, also after its end."""
    find_visible_job(live, principal, job_id)
    stored = await live.history.history(job_id)
    points = {
        name: [msg.MetricPoint.model_construct(**point._asdict()) for point in metric.points()]
        for name, metric in stored.metrics.items()
    }
    return msg.JobMetrics(last=live.history.results.of(job_id).metrics, history=points)


@history.get("/jobs/{job_id}/leases")
async def job_leases(
    job_id: str, live: LiveDependency, principal: CurrentPrincipal
) -> msg.JobLeases:
    """Return the leases of a job, with their devices, endings and costs."""
    number = find_visible_job(live, principal, job_id)
    stored = await live.history.history(job_id)
    counts, lease = live.counters.of(job_id), live.queries.job_status(number).lease
    device_s = live.counters.device_s_until(job_id, lease, live.clock.now())
    return msg.JobLeases(
        leases=counts.leases,
        preemptions=counts.preemptions,
        failures=counts.failures,
        lost_s=counts.lost_s,
        device_hours=device_s / 3600.0,
        ended=[
            msg.LeaseView(
                lease=record.lease,
                nodes=dict(record.nodes),
                accelerators=dict(record.accelerators),
                started_at=record.started_at,
                ended_at=record.ended_at,
                ending=record.ending,
                steps=record.steps,
                start_s=record.start_s,
                end_s=record.end_s,
                began=record.began,
                left=record.left,
                switch=record.switch,
                lost_s=record.lost_s,
                exit_codes=[*record.exit_codes],
            )
            for _, record in sorted(stored.leases.items())
        ],
    )


@history.get("/usage")
async def usage(
    live: LiveDependency,
    principal: CurrentPrincipal,
    tenant: str | None = None,
    first: Annotated[str | None, Query(alias="from", max_length=10)] = None,
    last: Annotated[str | None, Query(alias="to", max_length=10)] = None,
) -> list[msg.UsageView]:
    """Return device hours by day (UTC), tenant and accelerator, for the last 400 days.

    ``from`` and ``to`` are dates such as 2026-11-16, both included.
    """
    first_day, last_day = _day(first, "from", 0), _day(last, "to", _MAX_DAY)
    if first_day > last_day:
        raise InputError(f"{last} is before {first}", fix="expected a later date", field="to")
    cluster = live.scheduler.cluster
    prices = {name: detail.usd_per_hour for name, detail in cluster.details.items()}
    ledger = live.counters.usage_until(live.clock.now())
    rows = []
    for day, used in sorted(ledger.days.items()):
        if not first_day <= day <= last_day:
            continue
        for (owner, accelerator), device_s in sorted(used.items()):
            if not principal.can_see(owner) or tenant not in (None, owner):
                continue
            hours, price = device_s / 3600.0, prices.get(accelerator)
            rows.append(
                msg.UsageView(
                    day=_date(day),
                    tenant=owner,
                    accelerator=accelerator,
                    device_hours=hours,
                    usd=None if price is None else hours * price,
                )
            )
    return rows


def _day(text: str | None, field: str, default: int) -> int:
    """Return the number of a day since 1970."""
    if text is None:
        return default
    try:
        return date.fromisoformat(text).toordinal() - _EPOCH
    except ValueError:
        fix = "expected a date such as 2026-11-16"
        raise InputError(f"{text!r} is not a date", fix=fix, field=field) from None


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * DAY_S, UTC).date().isoformat()
