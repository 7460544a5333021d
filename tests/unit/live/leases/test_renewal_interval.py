"""Renewal intervals grow with the number of members."""

from dataclasses import replace

import pytest

from fairlead.live.leases.open_leases import OpenLease, RenewalLoad
from fairlead.live.leases.renewal import Renewal


@pytest.mark.parametrize("valid_s", [0.0, 1.0, 15.0, 60.0])
@pytest.mark.parametrize("members", [1, 500, 4000, 100_000])
def test_lease_can_be_renewed_twice_before_it_expires(valid_s: float, members: int) -> None:
    again_s = RenewalLoad(members).renewal_interval_s(valid_s)
    assert 0.05 <= again_s <= max(valid_s / 2, 0.05)


def test_few_members_renew_every_few_seconds() -> None:
    assert RenewalLoad(8).renewal_interval_s(60.0) == 5.0
    assert RenewalLoad(8).renewal_interval_s(8.0) == 1.0


def test_many_members_share_the_maximum_renewal_rate() -> None:
    assert 4000 / RenewalLoad(4000).renewal_interval_s(60.0) == pytest.approx(200.0)


def test_preempted_members_report_at_once_and_then_poll_at_an_interval_that_grows() -> None:
    lease = OpenLease(1, "a", 2, until=100.0, leaving=True)
    staying = Renewal(rank=0, started=7, steps=6)
    leaving = replace(staying, leaving=True)
    busy = RenewalLoad(members=4000, leaving=400)
    assert lease.renew(0.0, staying, busy)["again_s"] == 0.0
    assert lease.renew(0.0, leaving, busy)["again_s"] == pytest.approx(0.8)
    quiet = lease.renew(0.0, leaving, RenewalLoad(leaving=1))
    assert (quiet["again_s"], quiet["leave_after"]) == (0.05, None)
    last = lease.renew(0.0, replace(leaving, rank=1, started=9), busy)
    assert last["leave_after"] == 9
