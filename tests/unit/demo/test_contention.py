"""Shares are counted while all tenants could use more, in progress against an equal split."""

from typing import Any

import pytest

from fairlead.demo.contention import Contention


def job(tenant: str, steps: float, state: str = "running", weight: float = 1.0) -> dict[str, Any]:
    return {
        "tenant": tenant, "workload": f"of-{tenant}", "steps_done": steps, "state": state,
        "weight": weight, "gang": 1,
    }  # fmt: skip


def shares(a: float, b: float) -> list[dict[str, Any]]:
    return [{"tenant": "a", "device_hours": a}, {"tenant": "b", "device_hours": b}]


def watched() -> Contention:
    return Contention({"a": 1.0, "b": 1.0}, {"of-a": 2.0, "of-b": 1.0}, devices=2)


def test_progress_is_measured_against_an_equal_split_and_devices_by_time() -> None:
    seen = watched()
    seen.note(0.0, [job("a", 0), job("b", 0)], shares(0, 0))
    seen.note(10.0, [job("a", 20), job("b", 10)], shares(1, 3))
    a, b = seen.received()
    assert (a.entitled, b.entitled) == (0.5, 0.5)
    assert (a.progress, b.progress) == (0.5, 0.5), "a makes twice the steps at the same pace"
    assert (a.devices, b.devices) == (0.25, 0.75)


def test_time_in_which_somebody_has_too_few_jobs_does_not_count() -> None:
    seen = watched()
    seen.note(0.0, [job("a", 0), job("b", 0)], shares(0, 0))
    seen.note(10.0, [job("a", 20), job("b", 10)], shares(1, 1))
    seen.note(20.0, [job("a", 20, "finished"), job("b", 50)], shares(1, 3))
    assert seen.lasted_s == 10.0
    assert [one.progress for one in seen.received()] == [0.5, 0.5]


def test_entitlement_follows_the_weights_of_the_jobs_there_are() -> None:
    seen = watched()
    heavy = [job("a", 0, weight=2.0), job("b", 0), job("b", 0)]
    seen.note(0.0, heavy, shares(0, 0))
    seen.note(10.0, heavy, shares(1, 1))
    seen.note(30.0, [*heavy, job("b", 0), job("b", 0)], shares(2, 2))
    assert seen.received()[0].entitled == pytest.approx((10 * 0.5 + 20 / 3) / 30)


def test_without_contention_there_is_nothing_to_show() -> None:
    seen = watched()
    seen.note(0.0, [job("a", 0)], shares(0, 0))
    seen.note(9.0, [job("a", 5)], shares(1, 0))
    assert seen.received() == []
