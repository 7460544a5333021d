"""Overheads of leases, measured live and used by the simulator."""

import math

import numpy as np
import pytest

from fairlead.demo.scenario import demo_jobs, predicted
from fairlead.live.leases.claims import ClaimLimits, Claims
from fairlead.live.leases.open_leases import OpenLease, RenewalLoad
from fairlead.live.leases.overheads import LeaseOverheads, RestartTimes
from fairlead.live.leases.renewal import Renewal
from fairlead.model.events import RestartMeasured


def renewal(*, rank: int = 0, first_step_s: float | None, last_step_s: float | None) -> Renewal:
    return Renewal(
        rank=rank, started=5, steps=4, first_step_s=first_step_s, last_step_s=last_step_s
    )


def test_overhead_is_the_time_before_the_first_and_after_the_last_step() -> None:
    lease = OpenLease(1, "j", 2, 100.0, launched_at=10.0)
    lease.renew(10.9, renewal(first_step_s=None, last_step_s=None), RenewalLoad())
    lease.renew(13.0, renewal(first_step_s=1.5, last_step_s=0.2), RenewalLoad())
    lease.renew(20.0, renewal(first_step_s=8.5, last_step_s=0.5), RenewalLoad())
    lease.renew(20.1, renewal(rank=1, first_step_s=9.9, last_step_s=0.0), RenewalLoad())
    overheads = LeaseOverheads()
    overheads.record(lease, 20.3)
    assert overheads.start_s == pytest.approx(1.5)
    assert overheads.end_s == pytest.approx(0.8)


def test_adopted_leases_and_leases_without_steps_do_not_count_as_starts() -> None:
    overheads, adopted = LeaseOverheads(), OpenLease(1, "j", 1, 100.0)
    adopted.renew(5.0, renewal(first_step_s=3.0, last_step_s=1.0), RenewalLoad())
    overheads.record(adopted, 5.0)
    overheads.record(OpenLease(2, "j", 1, 100.0, launched_at=1.0), 5.0)
    assert overheads.start_s is None
    assert overheads.end_s == pytest.approx(1.0)
    assert math.isnan(adopted.launched_at)


def test_a_restart_is_reported_once_after_the_first_step_of_a_job_that_continues() -> None:
    saved = Claims(ClaimLimits(saved_steps=3.0))
    again = OpenLease(1, "again", 1, 100.0, launched_at=10.0, claims=saved)
    first = OpenLease(2, "first", 1, 100.0, launched_at=10.0)
    leases = {1: again, 2: first}
    restarts = RestartTimes(leases)
    assert restarts.events(11.0) == []
    for lease in leases.values():
        lease.renew(15.0, renewal(first_step_s=1.0, last_step_s=0.5), RenewalLoad())
    assert restarts.events(16.0) == [RestartMeasured(16.0, "again", 4.0)]
    assert restarts.events(17.0) == []


def test_higher_overheads_make_the_simulated_demo_last_longer() -> None:
    jobs = demo_jobs(9)
    arrivals = [job.arrival_s for job in jobs]
    free, costly = (
        predicted(jobs, arrivals, "max-min", start_s=cost, end_s=cost / 4, plan_lead_s=1.25)
        for cost in (0.0, 1.0)
    )
    assert np.all(free > arrivals)
    # Every job starts at least once, with one overhead.
    assert costly.mean() >= free.mean() + 1.0
