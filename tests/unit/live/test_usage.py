"""Device-seconds by day, tenant and accelerator."""

import json

from fairlead.live.history.usage import DAY_S, HeldDevices, UsageLedger


def test_lease_over_midnight_counts_on_both_days() -> None:
    ledger = UsageLedger()
    ledger.add(HeldDevices("a", "v100", 2, DAY_S - 100.0, DAY_S + 50.0))
    assert ledger.days == {0: {("a", "v100"): 200.0}, 1: {("a", "v100"): 100.0}}
    assert ledger.totals == {("a", "v100"): 300.0}


def test_open_leases_count_in_the_copy_only() -> None:
    ledger = UsageLedger()
    ledger.add(HeldDevices("a", "v100", 1, 0.0, 10.0))
    until_now = ledger.with_open([HeldDevices("a", "v100", 1, 10.0, 15.0)])
    assert until_now.totals[("a", "v100")] == 15.0
    assert (ledger.totals[("a", "v100")], ledger.days[0][("a", "v100")]) == (10.0, 10.0)


def test_ledger_keeps_400_days_and_all_totals() -> None:
    ledger = UsageLedger()
    for day in range(500):
        ledger.add(HeldDevices("a", "v100", 1, day * DAY_S, day * DAY_S + 1.0))
    assert sorted(ledger.days) == list(range(100, 500))
    assert ledger.totals == {("a", "v100"): 500.0}


def test_saved_ledger_is_the_same_and_an_earlier_version_saved_none() -> None:
    ledger = UsageLedger()
    ledger.add(HeldDevices("a/b", "v100", 3, 5.0, 7.5))
    again = UsageLedger()
    again.restore(json.loads(json.dumps(ledger.saved())))
    assert (again.days, again.totals) == (ledger.days, ledger.totals)
    again.restore({})
    assert (again.days, again.totals) == ({}, {})
