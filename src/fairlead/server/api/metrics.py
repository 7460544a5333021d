"""Prometheus metrics, computed for each scrape."""

from collections.abc import Iterator
from itertools import accumulate

import numpy as np
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fairlead.live.accounting import WAIT_BUCKETS_S, JobCounters
from fairlead.live.driver import Live
from fairlead.server.api.views import listed, share_views


def render(live: Live) -> bytes:
    """Return all metrics of a live scheduler in the Prometheus text format."""
    registry = CollectorRegistry()

    def gauge(name: str, about: str, *labels: str) -> Gauge:
        return Gauge(f"fairlead_{name}", about, labels, registry=registry)

    queries = live.queries
    all_tenants = np.ones(len(queries.tenants), dtype=bool)
    running, queued = (len(listed(live, all_tenants, state, 0)) for state in ("running", "queued"))
    gauge("jobs_running", "Running jobs.").set(running)
    gauge("jobs_queued", "Queued jobs.").set(queued)
    gauge("jobs_submitted", "Jobs ever submitted.").set(queries.job_count)
    gauge("leases_open", "Leases whose processes run or are stopping.").set(queries.lease_count)
    rounds = live.rounds
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
    about = "Plans that failed, also those computed later without some jobs, by plug-in."
    plans_failed = gauge("plans_failed", about, "plugin")
    for plugin, count in rounds.failures.count_of.items():
        plans_failed.labels(plugin).set(count)
    about = "Active jobs left out of plans, because plans fail with them."
    gauge("jobs_left_out", about).set(queries.left_out_count)
    busy = gauge("devices_busy", "Devices held by leases.", "accelerator")
    devices = gauge("devices", "Devices of the cluster.", "accelerator")
    for name, (total, held) in queries.device_counts().items():
        busy.labels(name).set(held)
        devices.labels(name).set(total)
    share = gauge("tenant_share", "Fraction of all devices.", "tenant", "kind")
    for view in share_views(live):
        share.labels(view.tenant, "entitled").set(view.entitled)
        share.labels(view.tenant, "received").set(view.received)
    counts = live.counters.tally.values()
    preemptions = sum(count.preemptions for count in counts)
    gauge("preemptions", "Leases that ended by preemption.").set(preemptions)
    failures = sum(count.failures for count in counts)
    gauge("failures", "Leases that ended by a failure.").set(failures)
    about = "Seconds of leases whose steps were in no checkpoint and were repeated."
    gauge("work_lost_seconds", about).set(sum(count.lost_s for count in counts))
    gauge(
        "suspicious_reports", "Reports of steps or speeds that are not possible, since the start."
    ).set(live.suspicious_reports.total)
    registry.register(_JobTotals(live.counters, live.clock.now()))
    text: bytes = generate_latest(registry)
    return text


class _JobTotals(Collector):
    """Counters of jobs and devices, which restarts of the server do not reset."""

    def __init__(self, counters: JobCounters, at: float) -> None:
        self._counters, self._at = counters, at

    def collect(self) -> Iterator[Metric]:
        """Yield the counters."""
        totals = self._counters.totals
        for state in ("finished", "failed", "cancelled"):
            yield CounterMetricFamily(
                f"fairlead_jobs_{state}",
                f"Jobs that ended as {state}.",
                totals.ended.get(state, 0),
            )
        bounds = [*map(str, WAIT_BUCKETS_S), "+Inf"]
        waits = zip(bounds, accumulate(totals.waits), strict=True)
        yield HistogramMetricFamily(
            "fairlead_queue_wait_seconds",
            "Time from the submission of jobs to their first start.",
            buckets=[(bound, float(count)) for bound, count in waits],
            sum_value=totals.waits_s,
        )
        about = "Device-seconds held by jobs."
        used = CounterMetricFamily(
            "fairlead_device_seconds", about, labels=("tenant", "accelerator")
        )
        for key, device_s in sorted(self._counters.usage_until(self._at).totals.items()):
            used.add_metric(key, device_s)
        yield used
