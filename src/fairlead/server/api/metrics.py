"""Figures for Prometheus, computed when it asks."""

import numpy as np
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from fairlead.live.driver import Live
from fairlead.server.api.views import listed, share_views


def render(live: Live) -> bytes:
    """Return all figures of a live scheduler as text."""
    registry = CollectorRegistry()

    def gauge(name: str, about: str, *labels: str) -> Gauge:
        return Gauge(f"fairlead_{name}", about, labels, registry=registry)

    scheduler, cluster = live.scheduler, live.scheduler.cluster
    jobs = scheduler.jobs
    everybody = np.ones(len(jobs.tenants), dtype=bool)
    running, queued = (len(listed(live, everybody, now, 0)) for now in ("running", "queued"))
    gauge("jobs_running", "Jobs that hold devices.").set(running)
    gauge("jobs_queued", "Jobs that wait for devices.").set(queued)
    gauge("jobs_submitted", "Jobs ever submitted.").set(len(jobs))
    gauge("leases_open", "Leases under which processes run or end.").set(len(scheduler.leases))
    rounds = live.rounds
    for name, about, times in (
        ("decision_seconds", "Time to compute recent plans.", rounds.decisions_s),
        ("round_seconds", "From a plan's being due to its being in the log.", rounds.rounds_s),
    ):
        seconds = gauge(name, about, "quantile")
        for quantile in (0.5, 0.99, 1.0):
            seconds.labels(str(quantile)).set(float(np.quantile(times or [0.0], quantile)))
    held = (scheduler.leases.holder >= 0).any(axis=0)
    busy = gauge("devices_busy", "Devices that are held.", "accelerator")
    there = gauge("devices", "Devices there are.", "accelerator")
    lasting = scheduler.nodes.lasting
    for index, name in enumerate(cluster.accelerators):
        mine = cluster.accelerator_of == index
        busy.labels(name).set(int(np.count_nonzero(held & mine)))
        there.labels(name).set(int(lasting[index]))
    share = gauge("tenant_share", "Part of all devices.", "tenant", "kind")
    for view in share_views(live):
        share.labels(view.tenant, "entitled").set(view.entitled)
        share.labels(view.tenant, "received").set(view.received)
    tallies = live.ledger.tally.values()
    gauge("preemptions", "Leases after which their job had to wait for another.").set(
        sum(tally.preemptions for tally in tallies)
    )
    gauge("failures", "Leases that ended in a crash.").set(sum(t.failures for t in tallies))
    found: bytes = generate_latest(registry)
    return found
