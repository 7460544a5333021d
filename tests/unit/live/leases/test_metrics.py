"""Metrics that members of a lease report."""

import math

from fairlead.live.leases.open_leases import OpenLease, RenewalLoad
from fairlead.live.leases.renewal import Renewal


def renew(lease: OpenLease, metrics: dict[str, float]) -> None:
    lease.renew(0.0, Renewal(rank=0, started=1, steps=1, metrics=metrics), RenewalLoad(1))


def test_lease_keeps_the_newest_values_of_its_first_hundred_metrics() -> None:
    lease = OpenLease(1, "a", 1, until=100.0)
    renew(lease, {"loss": 1.0, "accuracy": 0.5})
    for step in range(300):
        renew(lease, {f"loss of step {step}": 1.0, "loss": float(step)})
    assert len(lease.metrics) == 100
    assert list(lease.metrics)[:3] == ["loss", "accuracy", "loss of step 0"]
    assert (lease.metrics["loss"], lease.metrics["accuracy"]) == (299.0, 0.5)
    renew(lease, {"accuracy": math.inf})
    assert lease.metrics["accuracy"] is None
