"""Explanations: binding constraints, prices and effective changes."""

import math
from typing import Any

import numpy as np
import pytest
from tests.unit.insight.test_audit import PAPER, market

from fairlead.insight.explain.explain import Explanation, JobSpeed, explain, find
from fairlead.insight.explain.shadow_prices import Prices
from fairlead.insight.explain.text import paragraphs
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.model.tenants.tenant import Tenant
from fairlead.policies.rules.priority import create_policy


def explained(name: str, snap: Snapshot, subject: str, **more: Any) -> Explanation:
    return explain(snap, create_policy(name), subject, name=name, **more)


def jobs(*fields: dict[str, Any], tenants: tuple[Tenant, ...] = (), **counts: int) -> Snapshot:
    made = tuple(InstanceJob(**{"id": f"j{i + 1}", **job}) for i, job in enumerate(fields))
    return snapshot_of(Instance(Cluster.of(counts), made, tenants))


def gains(explanation: Explanation) -> dict[str, float]:
    return {outcome.change.what: outcome.gain for outcome in explanation.outcomes}


def test_job_alone_on_its_fastest_accelerator_is_bound_by_time() -> None:
    explanation = explained(
        "max-min", jobs({"speeds": {"v100": 4, "k80": 1}}, v100=1, k80=1), "j1"
    )
    assert explanation.binding[0].what == "time"
    assert "fastest" in explanation.binding[0].why
    assert explanation.cheapest is None
    assert "No tried change raises" in paragraphs(explanation)[-1]
    assert any("all prices are 0" in text for text in paragraphs(explanation))
    explanation = explained("fifo", jobs({"speeds": {"v100": 4, "k80": 1}}, v100=1, k80=1), "j1")
    assert any("fifo has no prices" in text for text in paragraphs(explanation))


def test_assumed_speeds_are_not_stated_as_facts() -> None:
    snap = jobs({"speeds": {"v100": 4, "k80": 1}}, v100=1, k80=1)
    measured, assumed = JobSpeed(4.0, "measured"), JobSpeed(4.0, "assumed")
    slow = JobSpeed(1.0, "assumed")
    known = explained("max-min", snap, "j1", believed={"v100": measured, "k80": slow})
    assert "job j1 makes 4 steps/s" in paragraphs(known)[0]
    assert "4 steps/s on v100 (measured) and 1 step" in paragraphs(known)[1]
    assert "on k80 (assumed, not measured yet)" in paragraphs(known)[1]
    guessed = explained("max-min", snap, "j1", believed={"v100": assumed, "k80": slow})
    assert "job j1 is assumed to make 4 steps/s" in paragraphs(guessed)[0]
    assert guessed.as_dict()["believed_speeds"]["v100"] == {
        "steps_per_s": 4.0,
        "source": "assumed",
        "doubt": None,
        "planned_steps_per_s": None,
    }
    doubted = explained("max-min", snap, "j1", believed={"v100": JobSpeed(4.0, "assumed", 0.5)})
    assert (
        "(assumed, not measured yet; 2.1 to 7.6 with 80 % probability)" in paragraphs(doubted)[1]
    )
    tried = explained("max-min", snap, "j1", believed={"v100": JobSpeed(4.0, "assumed", 0.5, 6)})
    assert "with 80 % probability; decisions use 6 until it was tried)" in paragraphs(tried)[1]
    assert not explained("max-min", snap, "j1").believed  # an instance's speeds are given


def test_time_until_the_end_states_the_doubt_of_the_devices_held() -> None:
    snap = jobs({"speeds": {"v100": 4, "k80": 1}}, v100=1, k80=1)
    unused = JobSpeed(1.0, "assumed", 2.0)

    def left(speed: JobSpeed, steps: float | None) -> tuple[str, Any]:
        believed = {"v100": speed, "k80": unused}
        explanation = explained("max-min", snap, "j1", believed=believed, steps_left=steps)
        text = next((t for t in paragraphs(explanation) if t.startswith("At this speed")), "")
        return text, explanation.as_dict()["left_s"]

    text, left_s = left(JobSpeed(4.0, "measured"), 40_000.0)
    assert text.startswith("At this speed, its remaining 40,000 steps take 2.8 h. Jobs that")
    assert left_s == {"expected": 10_000.0, "low": 10_000.0, "high": 10_000.0}
    text, left_s = left(JobSpeed(4.0, "assumed", 0.5), 400.0)
    assert "take 100 s; 53 s to 3.2 min with 80 % probability." in text
    assert left_s["high"] == pytest.approx(100.0 * math.exp(0.5 * 1.2816), rel=1e-4)
    assert left(JobSpeed(4.0, "measured"), None) == ("", None)


def test_tenant_without_own_jobs_is_rejected_with_its_descendants() -> None:
    tenants = (Tenant("lab"), Tenant("group", parent="lab"), Tenant("vision", parent="group"))
    snap = jobs({"speeds": {"v100": 4}, "tenant": "vision"}, {"speeds": {"v100": 1}},
                tenants=tenants, v100=1)  # fmt: skip
    for tenant in ("lab", "group"):
        with pytest.raises(InputError, match=f"no jobs of tenant '{tenant}' itself") as caught:
            find(snap, tenant)
        assert caught.value.fix == "expected one of vision"


def test_bindings_name_full_and_unusable_accelerators() -> None:
    snap = jobs(
        {"speeds": {"v100": 4}},
        {"speeds": {"v100": 3, "k80": 1}},
        {"speeds": {"v100": 3, "k80": 1}, "gang": 2},
        v100=1,
        k80=2,
    )
    of = {(b.what, b.on) for b in explained("max-min", snap, "j1").binding}
    assert ("devices", "v100") in of
    assert ("cannot run", "k80") in of
    assert ("gang", "v100") in {(b.what, b.on) for b in explained("max-min", snap, "j3").binding}


def test_limit_of_the_tenant_binds() -> None:
    snap = jobs(
        {"speeds": {"v100": 4}, "tenant": "t"},
        {"speeds": {"v100": 4}, "tenant": "s"},
        tenants=(Tenant("t", limit={"v100": 0.5}), Tenant("s")),
        v100=1,
    )
    assert ("quota", "v100") in {(b.what, b.on) for b in explained("isolated", snap, "j1").binding}


def test_explanation_of_a_waiting_job_names_a_change_that_starts_it() -> None:
    snap = jobs({"speeds": {"v100": 4}}, {"speeds": {"v100": 4}}, v100=1)
    explanation = explained("fifo", snap, "j2")
    assert explanation.prices is None
    assert "waits" in {b.what for b in explanation.binding}
    cheapest = explanation.cheapest
    assert cheapest is not None
    assert cheapest.change.kind == "device"
    assert math.isinf(cheapest.gain)
    assert cheapest.speed == pytest.approx(4)
    assert explanation.as_dict()["cheapest"]["gain"] is None
    text = " ".join(paragraphs(explanation))
    assert "no prices" in text
    assert "instead of not at all" in text


def test_prices_equal_the_certificate_and_speed_costs_the_same_on_mixed_accelerators() -> None:
    explanation = explained("max-min", market(PAPER), "j2")
    assert explanation.prices is not None
    proof = explanation.allocation.prove
    assert proof is not None
    assert explanation.prices.price == pytest.approx(proof().prices)
    slow, fast = explanation.prices.per_speed
    assert slow == pytest.approx(fast)


def test_additional_accelerator_is_the_cheapest_change() -> None:
    fast = {"workload": "w", "speeds": {"v100": 10, "k80": 2}}
    snap = jobs({"workload": "w", "speeds": {"k80": 2}}, fast, fast, v100=2, k80=1)
    explanation = explained("max-min", snap, "j1")
    cheapest = explanation.cheapest
    assert cheapest is not None
    assert cheapest.change.kind == "accelerator"
    assert cheapest.change.edit == {"jobs": {"j1": {"speeds": {"v100": 10.0}}}}
    assert cheapest.change.assumed == "as j2 runs there"
    assert cheapest.gain > 0.5


def test_smaller_gang_that_scales_better_is_the_cheapest_change() -> None:
    snap = jobs(
        {"workload": "w", "gang": 4, "speeds": {"v100": 5}},
        {"workload": "w", "gang": 2, "speeds": {"v100": 4.5}},
        {"workload": "x", "gang": 1, "speeds": {"v100": 1}},
        {"workload": "x", "gang": 1, "speeds": {"v100": 1}},
        v100=4,
    )
    explanation = explained("max-min", snap, "j1")
    cheapest = explanation.cheapest
    assert cheapest is not None
    assert cheapest.change.kind == "gang"
    assert cheapest.change.edit["jobs"]["j1"] == {"gang": 2, "speeds": {"v100": 4.5}}
    assert cheapest.change.assumed == "as j2 runs"


def test_changes_are_ordered_by_effort_owner_then_weight_then_hardware() -> None:
    slow, fast = ({"workload": "w", "speeds": {"k80": 2}}, {"speeds": {"v100": 10, "k80": 2}})
    snap = jobs(slow, slow, fast, {**fast, "workload": "w"}, v100=1, k80=1)
    order = [o.change.kind for o in explained("max-min", snap, "j1").outcomes if o.gain >= 0.01]
    assert order == sorted(order, key=["accelerator", "gang", "weight", "device"].index)
    assert {"accelerator", "weight", "device"} <= set(order)


def test_job_under_a_tenant_policy_is_explained_by_its_tenant() -> None:
    explanation = explained("oef", market(PAPER), "j2")
    assert explanation.subject.name == "u2"
    assert explanation.subject.of_job == "j2"
    assert "allocates to tenants" in paragraphs(explanation)[0]
    assert explanation.speed == pytest.approx(18 / 13)
    assert "with the weight of tenant u2 doubled" in gains(explanation)


def test_tenant_is_the_sum_of_its_jobs() -> None:
    snap = jobs(
        {"speeds": {"v100": 4, "k80": 1}, "tenant": "t"},
        {"speeds": {"v100": 2, "k80": 1}, "tenant": "t"},
        {"speeds": {"v100": 3, "k80": 1}, "tenant": "s"},
        v100=1,
        k80=1,
    )
    explanation = explained("max-min", snap, "t")
    alone = [explained("max-min", snap, name) for name in ("j1", "j2")]
    assert explanation.subject.is_tenant
    assert explanation.normal == pytest.approx(sum(job.normal for job in alone))
    assert explanation.devices == pytest.approx(sum(job.devices for job in alone))
    assert "with 2 jobs" in paragraphs(explanation)[0]


def test_job_takes_precedence_over_a_tenant_with_the_same_id() -> None:
    snap = jobs(
        {"id": "same", "speeds": {"v100": 1}},
        {"id": "other", "tenant": "same", "speeds": {"v100": 1}},
        v100=1,
    )
    assert not explained("max-min", snap, "same").subject.is_tenant
    assert explained("max-min", snap, "same", tenant=True).subject.is_tenant


def test_unknown_id_is_rejected_with_similar_ids() -> None:
    snap = jobs(*({"id": f"job-{i}", "speeds": {"v100": 1}} for i in (3, 12)), v100=1)
    with pytest.raises(InputError, match="such as job-12") as caught:
        explained("max-min", snap, "jobb-12")
    assert "no job or tenant with jobs: 'jobb-12'" in str(caught.value)
    with pytest.raises(InputError, match="expected some jobs"):
        explained("max-min", jobs(v100=1), "job-1")


def test_prices_predict_the_slope_of_small_weight_changes() -> None:
    """Compared with solves at slightly more weight, for every job at the lowest level."""
    rng = np.random.default_rng(0)
    tried = 0
    for _ in range(25):
        n = int(rng.integers(3, 7))
        rows = rng.uniform(0.3, 4, (n, 3)).tolist()
        weights = rng.choice([1.0, 2.0], n).tolist()
        snap = market(rows, devices=[1, 1, 2], weights=weights)
        allocation = create_policy("max-min").allocate(snap)
        for i in range(n):
            prices = Prices.of(snap, allocation, find(snap, f"j{i + 1}"))
            if prices is None or prices.gain_per_weight is None:
                continue
            more = list(weights)
            more[i] *= 1.0001
            after = create_policy("max-min").allocate(
                market(rows, devices=[1, 1, 2], weights=more)
            )
            before, now = ((snap.speed[i] * a.share[i]).sum() for a in (allocation, after))
            assert prices.gain_per_weight == pytest.approx((now / before - 1) / 0.0001, abs=2e-3)
            tried += 1
    assert tried > 30
