"""The demo measures shares while all tenants contend, in progress and in device time."""

from typing import Any

import pytest

from fairlead.demo.contention import ContentionMeter


def job(tenant: str, steps: float, state: str = "running", weight: float = 1.0) -> dict[str, Any]:
    return {
        "tenant": tenant, "workload": f"of-{tenant}", "steps_done": steps, "state": state,
        "weight": weight, "gang": 1,
    }  # fmt: skip


def shares(a: float, b: float) -> list[dict[str, Any]]:
    return [{"tenant": "a", "device_hours": a}, {"tenant": "b", "device_hours": b}]


def two_tenants() -> ContentionMeter:
    return ContentionMeter({"a": 1.0, "b": 1.0}, {"of-a": 2.0, "of-b": 1.0}, devices=2)


def test_progress_is_measured_against_an_equal_split_and_devices_by_time() -> None:
    meter = two_tenants()
    meter.record(0.0, [job("a", 0), job("b", 0)], shares(0, 0))
    meter.record(10.0, [job("a", 20), job("b", 10)], shares(1, 3))
    a, b = meter.received()
    assert (a.entitled, b.entitled) == (0.5, 0.5)
    assert (a.progress, b.progress) == (0.5, 0.5), (
        "a makes twice the steps at the same relative speed"
    )
    assert (a.devices, b.devices) == (0.25, 0.75)


def test_time_in_which_a_tenant_has_too_few_jobs_does_not_count() -> None:
    meter = two_tenants()
    meter.record(0.0, [job("a", 0), job("b", 0)], shares(0, 0))
    meter.record(10.0, [job("a", 20), job("b", 10)], shares(1, 1))
    meter.record(20.0, [job("a", 20, "finished"), job("b", 50)], shares(1, 3))
    assert meter.contended_s == 10.0
    assert [row.progress for row in meter.received()] == [0.5, 0.5]


def test_entitlement_follows_the_weights_of_the_current_jobs() -> None:
    meter = two_tenants()
    heavy = [job("a", 0, weight=2.0), job("b", 0), job("b", 0)]
    meter.record(0.0, heavy, shares(0, 0))
    meter.record(10.0, heavy, shares(1, 1))
    meter.record(30.0, [*heavy, job("b", 0), job("b", 0)], shares(2, 2))
    assert meter.received()[0].entitled == pytest.approx((10 * 0.5 + 20 / 3) / 30)


def test_no_shares_are_shown_without_contention() -> None:
    meter = two_tenants()
    meter.record(0.0, [job("a", 0)], shares(0, 0))
    meter.record(9.0, [job("a", 5)], shares(1, 0))
    assert meter.received() == []
