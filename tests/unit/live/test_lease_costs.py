"""What leases cost beside their steps, and what the simulator makes of it."""

import math

import numpy as np
import pytest

from fairlead.demo.scenario import demo_jobs, predicted
from fairlead.live.leases.open_leases import Costs, Load, OpenLease


def told(
    *, rank: int = 0, first_step_s: float | None, last_step_s: float | None
) -> dict[str, object]:
    return {
        "rank": rank,
        "started": 5,
        "steps": 4,
        "first_step_s": first_step_s,
        "last_step_s": last_step_s,
    }


def test_a_lease_costs_what_lies_outside_its_first_and_last_step() -> None:
    lease = OpenLease(1, "j", 2, 100.0, launched_at=10.0)
    lease.renew(10.9, told(first_step_s=None, last_step_s=None), Load())
    lease.renew(13.0, told(first_step_s=1.5, last_step_s=0.2), Load())
    lease.renew(20.0, told(first_step_s=8.5, last_step_s=0.5), Load())
    lease.renew(20.1, told(rank=1, first_step_s=9.9, last_step_s=0.0), Load())  # others follow 0
    costs = Costs()
    costs.note(lease, 20.3)
    assert costs.start_s == pytest.approx(1.5)
    assert costs.end_s == pytest.approx(0.8)


def test_leases_of_an_earlier_server_and_without_steps_do_not_count_as_starts() -> None:
    costs, adopted = Costs(), OpenLease(1, "j", 1, 100.0)
    adopted.renew(5.0, told(first_step_s=3.0, last_step_s=1.0), Load())
    costs.note(adopted, 5.0)
    costs.note(OpenLease(2, "j", 1, 100.0, launched_at=1.0), 5.0)
    assert costs.start_s is None
    assert costs.end_s == pytest.approx(1.0)
    assert math.isnan(adopted.launched_at)


def test_dearer_leases_make_the_simulated_demo_last_longer() -> None:
    jobs = demo_jobs(9)
    arrivals = [job.arrival_s for job in jobs]
    free, dear = (
        predicted(jobs, arrivals, "max-min", start_s=cost, end_s=cost / 4, plan_lead_s=1.25)
        for cost in (0.0, 1.0)
    )
    assert np.all(free > arrivals)
    # Every job starts at least once, and pays for it.
    assert dear.mean() >= free.mean() + 1.0
