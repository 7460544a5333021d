"""Prometheus metrics, computed for each scrape."""

import numpy as np
from prometheus_client import CollectorRegistry, Gauge, generate_latest

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
    text: bytes = generate_latest(registry)
    return text
