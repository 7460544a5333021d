"""Prometheus metrics, computed for each scrape."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate

import numpy as np
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fairlead.live.driver import Live
from fairlead.live.history.tenant_totals import MAX_LABELS, OTHERS
from fairlead.live.history.totals import WAIT_BUCKETS_S
from fairlead.live.leases.overheads import BUCKETS_S
from fairlead.server.api.device_health import device_metrics
from fairlead.server.api.views import listed, share_views

_TENANT_COUNTERS = (
    ("jobs_submitted", "Submitted jobs.", "submitted"),
    ("jobs_finished", "Jobs that ended as finished.", "finished"),
    ("jobs_failed", "Jobs that ended as failed.", "failed"),
    ("jobs_cancelled", "Jobs that ended as cancelled.", "cancelled"),
    ("preemptions", "Leases after which the job had to wait for another one.", "preemptions"),
    ("lease_failures", "Leases that ended in a crash.", "lease_failures"),
    (
        "work_lost_seconds",
        "Seconds of leases whose steps were in no checkpoint and were repeated.",
        "lost_s",
    ),
)
"""name, description and field of the counters by tenant"""


def render(live: Live) -> bytes:
    """Return all metrics of a live scheduler in the Prometheus text format."""
    registry = CollectorRegistry()

    def gauge(name: str, about: str, *labels: str) -> Gauge:
        return Gauge(f"fairlead_{name}", about, labels, registry=registry)

    _set_job_gauges(live, gauge)
    _set_device_gauges(live, gauge)
    registry.register(_Counters(live))
    text: bytes = generate_latest(registry)
    return text


def _set_job_gauges(live: Live, gauge: Callable[..., Gauge]) -> None:
    queries, rounds = live.queries, live.rounds
    all_tenants = np.ones(len(queries.tenants), dtype=bool)
    running, queued = (len(listed(live, all_tenants, state, 0)) for state in ("running", "queued"))
    gauge("jobs_running", "Running jobs.").set(running)
    gauge("jobs_queued", "Queued jobs.").set(queued)
    gauge("leases_open", "Leases whose processes run or are stopping.").set(queries.lease_count)
    about = "Active jobs left out of plans, because plans fail with them."
    gauge("jobs_left_out", about).set(queries.left_out_count)
    for name, about, times in (
        ("decision_seconds", "Time to compute recent plans.", rounds.decisions_s),
        (
            "round_seconds",
            "Time from the due time of a plan until it is persisted.",
            rounds.rounds_s,
        ),
    ):
        seconds = gauge(name, about, "quantile")
        for quantile in (0.5, 0.99, 1.0):
            seconds.labels(str(quantile)).set(float(np.quantile(times or [0.0], quantile)))


def _set_device_gauges(live: Live, gauge: Callable[..., Gauge]) -> None:
    busy = gauge("devices_busy", "Devices held by leases.", "accelerator")
    devices = gauge("devices", "Devices of the cluster.", "accelerator")
    for name, (total, held) in live.queries.device_counts().items():
        busy.labels(name).set(held)
        devices.labels(name).set(total)
    shared = gauge("devices_shared", "Devices held by several leases.", "accelerator")
    for name, count in live.queries.shared_device_counts().items():
        shared.labels(name).set(count)
    share = gauge("tenant_share", "Fraction of all devices.", "tenant", "kind")
    labels = live.counters.tenants.labels()
    for view in share_views(live):
        label = labels.get(view.tenant, view.tenant if len(labels) < MAX_LABELS else OTHERS)
        share.labels(label, "entitled").inc(view.entitled)
        share.labels(label, "received").inc(view.received)


class _Counters(Collector):
    """Counters, histograms and the gauges of single devices.

    Counters of jobs and devices come from the event log, so that restarts of the server do not
    reset them; the others count since the server's start.
    """

    def __init__(self, live: Live) -> None:
        self._live = live

    def collect(self) -> Iterator[Metric]:
        """Yield the counters."""
        yield from self._of_tenants()
        yield self._device_seconds()
        yield from device_metrics(self._live)
        totals, overheads = self._live.counters.totals, self._live.overheads
        yield _counter(
            "removed",
            "Things removed because of their age or size, by kind.",
            "kind",
            {
                name: totals.removed.get(name, 0)
                for name in ("jobs", "logs", "checkpoints", "audit")
            },
        )
        about = "Plans that failed, also those computed later without some jobs, by plug-in."
        failures = self._live.rounds.failures
        yield _counter("plans_failed", about, "plugin", failures.count_of)
        yield CounterMetricFamily(
            "fairlead_suspicious_reports",
            "Reports of steps or speeds that are not possible.",
            self._live.suspicious_reports.total,
        )
        about = "Time from the submission of jobs to their first start."
        yield _histogram("queue_wait", about, WAIT_BUCKETS_S, totals.waits, totals.waits_s)
        start, end = overheads.start, overheads.end
        about = "Time from the launch of leases to their first step."
        yield _histogram("lease_start", about, BUCKETS_S, start.counts, start.sum_s)
        about = "Time from the last step of leases to their end."
        yield _histogram("lease_end", about, BUCKETS_S, end.counts, end.sum_s)

    def _of_tenants(self) -> Iterator[Metric]:
        by_label = self._live.counters.tenants.by_label()
        for name, about, field in _TENANT_COUNTERS:
            values = {label: getattr(counts, field) for label, counts in by_label.items()}
            yield _counter(name, about, "tenant", values)

    def _device_seconds(self) -> Metric:
        counters = self._live.counters
        labels, used = counters.tenants.labels(), dict[tuple[str, str], float]()
        usage = counters.usage_until(self._live.clock.now())
        for (tenant, accelerator), device_s in usage.totals.items():
            key = labels.get(tenant, OTHERS), accelerator
            used[key] = used.get(key, 0.0) + device_s
        metric = CounterMetricFamily(
            "fairlead_device_seconds",
            "Device-seconds held by jobs.",
            labels=("tenant", "accelerator"),
        )
        for labelled, device_s in sorted(used.items()):
            metric.add_metric(labelled, device_s)
        return metric


def _counter(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return a counter with one label."""
    metric = CounterMetricFamily(f"fairlead_{name}", about, labels=(label,))
    for key, value in values.items():
        metric.add_metric((key,), value)
    return metric


def _histogram(
    name: str, about: str, bounds: Sequence[float], counts: Sequence[int], sum_s: float
) -> Metric:
    """Return a histogram of seconds."""
    labels = [*map(str, bounds), "+Inf"]
    buckets = zip(labels, map(float, accumulate(counts)), strict=True)
    return HistogramMetricFamily(
        f"fairlead_{name}_seconds", about, buckets=[*buckets], sum_value=sum_s
    )
