"""Members renew often while there are few of them, and less often the more there are."""

import pytest

from fairlead.live.leases.open_leases import Load, OpenLease


@pytest.mark.parametrize("valid_s", [0.0, 1.0, 15.0, 60.0])
@pytest.mark.parametrize("members", [1, 500, 4000, 100_000])
def test_a_lease_can_be_renewed_twice_before_it_ends(valid_s: float, members: int) -> None:
    again_s = Load(members).renewal_interval_s(valid_s)
    assert 0.05 <= again_s <= max(valid_s / 2, 0.05)


def test_few_members_renew_every_few_seconds() -> None:
    assert Load(8).renewal_interval_s(60.0) == 5.0
    assert Load(8).renewal_interval_s(8.0) == 1.0


def test_many_members_together_renew_so_many_times_a_second() -> None:
    assert 4000 / Load(4000).renewal_interval_s(60.0) == pytest.approx(200.0)


def test_members_told_to_leave_say_their_steps_at_once_and_then_wait_by_their_number() -> None:
    lease = OpenLease(1, "a", 2, until=100.0, leaving=True)
    told = {"rank": 0, "started": 7, "steps": 6, "leaving": False}
    crowd = Load(members=4000, leaving=400)
    assert lease.renew(0.0, told, crowd)["again_s"] == 0.0
    assert lease.renew(0.0, {**told, "leaving": True}, crowd)["again_s"] == pytest.approx(0.8)
    alone = lease.renew(0.0, {**told, "leaving": True}, Load(leaving=1))
    assert (alone["again_s"], alone["leave_after"]) == (0.05, None)
    last = lease.renew(0.0, {**told, "rank": 1, "started": 9, "leaving": True}, crowd)
    assert last["leave_after"] == 9
