"""Explanations: what binds, what speeds cost, and what would help."""

import math
from typing import Any

import numpy as np
import pytest
from tests.unit.insight.test_audit import PAPER, market

from fairlead.insight.explain.explain import Explanation, explain, find
from fairlead.insight.explain.shadow_prices import Prices
from fairlead.insight.explain.text import paragraphs
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.job import Tenant
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.policies.rules.priority import policy_named


def why(name: str, snap: Snapshot, who: str, **more: Any) -> Explanation:
    return explain(snap, policy_named(name), who, name=name, **more)


def jobs(*given: dict[str, Any], tenants: tuple[Tenant, ...] = (), **counts: int) -> Snapshot:
    made = tuple(InstanceJob(**{"id": f"j{i + 1}", **job}) for i, job in enumerate(given))
    return snapshot_of(Instance(Cluster.of(counts), made, tenants))


def gains(found: Explanation) -> dict[str, float]:
    return {outcome.change.what: outcome.gain for outcome in found.outcomes}


def test_a_job_alone_on_its_fastest_accelerator_is_bound_by_its_own_time() -> None:
    found = why("max-min", jobs({"speeds": {"v100": 4, "k80": 1}}, v100=1, k80=1), "j1")
    assert found.binding[0].what == "time"
    assert "fastest" in found.binding[0].why
    assert found.cheapest is None
    assert "None of the changes" in paragraphs(found)[-1]
    assert any("the price of each is 0" in said for said in paragraphs(found))
    found = why("fifo", jobs({"speeds": {"v100": 4, "k80": 1}}, v100=1, k80=1), "j1")
    assert any("fifo gives no prices" in said for said in paragraphs(found))


def test_of_a_tenant_whose_jobs_are_those_of_tenants_inside_it_these_are_named() -> None:
    tenants = (Tenant("lab"), Tenant("group", parent="lab"), Tenant("vision", parent="group"))
    snap = jobs({"speeds": {"v100": 4}, "tenant": "vision"}, {"speeds": {"v100": 1}},
                tenants=tenants, v100=1)  # fmt: skip
    for who in ("lab", "group"):
        with pytest.raises(InputError, match=f"{who}' has no jobs of its own") as caught:
            find(snap, who)
        assert caught.value.fix == "ask about one of these: vision"


def test_full_accelerators_bind_and_unusable_ones_are_named() -> None:
    snap = jobs(
        {"speeds": {"v100": 4}},
        {"speeds": {"v100": 3, "k80": 1}},
        {"speeds": {"v100": 3, "k80": 1}, "gang": 2},
        v100=1,
        k80=2,
    )
    of = {(b.what, b.on) for b in why("max-min", snap, "j1").binding}
    assert ("devices", "v100") in of
    assert ("cannot run", "k80") in of
    assert ("gang", "v100") in {(b.what, b.on) for b in why("max-min", snap, "j3").binding}


def test_a_limit_of_its_tenant_is_said_to_bind() -> None:
    snap = jobs(
        {"speeds": {"v100": 4}, "tenant": "t"},
        {"speeds": {"v100": 4}, "tenant": "s"},
        tenants=(Tenant("t", limit={"v100": 0.5}), Tenant("s")),
        v100=1,
    )
    assert ("quota", "v100") in {(b.what, b.on) for b in why("isolated", snap, "j1").binding}


def test_a_waiting_job_is_told_that_it_waits_and_what_would_start_it() -> None:
    snap = jobs({"speeds": {"v100": 4}}, {"speeds": {"v100": 4}}, v100=1)
    found = why("fifo", snap, "j2")
    assert found.prices is None
    assert "waits" in {b.what for b in found.binding}
    cheapest = found.cheapest
    assert cheapest is not None
    assert cheapest.change.kind == "device"
    assert math.isinf(cheapest.gain)
    assert cheapest.speed == pytest.approx(4)
    assert found.as_dict()["cheapest"]["gain"] is None
    text = " ".join(paragraphs(found))
    assert "no prices" in text
    assert "instead of not at all" in text


def test_prices_are_those_of_the_certificate_and_speed_costs_the_same_where_it_mixes() -> None:
    found = why("max-min", market(PAPER), "j2")
    assert found.prices is not None
    proof = found.allocation.prove
    assert proof is not None
    assert found.prices.price == pytest.approx(proof().prices)
    slow, fast = found.prices.per_speed
    assert slow == pytest.approx(fast)


def test_an_accelerator_it_may_not_use_is_the_cheapest_change() -> None:
    fast = {"workload": "w", "speeds": {"v100": 10, "k80": 2}}
    snap = jobs({"workload": "w", "speeds": {"k80": 2}}, fast, fast, v100=2, k80=1)
    found = why("max-min", snap, "j1")
    cheapest = found.cheapest
    assert cheapest is not None
    assert cheapest.change.kind == "accelerator"
    assert cheapest.change.edit == {"jobs": {"j1": {"speeds": {"v100": 10.0}}}}
    assert cheapest.change.assumed == "as j2 runs there"
    assert cheapest.gain > 0.5


def test_a_smaller_gang_that_scales_better_is_the_cheapest_change() -> None:
    snap = jobs(
        {"workload": "w", "gang": 4, "speeds": {"v100": 5}},
        {"workload": "w", "gang": 2, "speeds": {"v100": 4.5}},
        {"workload": "x", "gang": 1, "speeds": {"v100": 1}},
        {"workload": "x", "gang": 1, "speeds": {"v100": 1}},
        v100=4,
    )
    found = why("max-min", snap, "j1")
    cheapest = found.cheapest
    assert cheapest is not None
    assert cheapest.change.kind == "gang"
    assert cheapest.change.edit["jobs"]["j1"] == {"gang": 2, "speeds": {"v100": 4.5}}
    assert cheapest.change.assumed == "as j2 runs"


def test_what_the_owner_can_change_comes_before_weight_and_weight_before_hardware() -> None:
    slow, fast = ({"workload": "w", "speeds": {"k80": 2}}, {"speeds": {"v100": 10, "k80": 2}})
    snap = jobs(slow, slow, fast, {**fast, "workload": "w"}, v100=1, k80=1)
    kinds = [o.change.kind for o in why("max-min", snap, "j1").outcomes if o.gain >= 0.01]
    assert kinds == sorted(kinds, key=["accelerator", "gang", "weight", "device"].index)
    assert {"accelerator", "weight", "device"} <= set(kinds)


def test_a_job_of_a_tenant_policy_is_explained_by_its_tenant() -> None:
    found = why("oef", market(PAPER), "j2")
    assert found.subject.name == "u2"
    assert found.subject.of_job == "j2"
    assert "gives devices to tenants" in paragraphs(found)[0]
    assert found.speed == pytest.approx(18 / 13)
    assert "with the weight of tenant u2 doubled" in gains(found)


def test_a_tenant_is_the_sum_of_its_jobs() -> None:
    snap = jobs(
        {"speeds": {"v100": 4, "k80": 1}, "tenant": "t"},
        {"speeds": {"v100": 2, "k80": 1}, "tenant": "t"},
        {"speeds": {"v100": 3, "k80": 1}, "tenant": "s"},
        v100=1,
        k80=1,
    )
    found = why("max-min", snap, "t")
    alone = [why("max-min", snap, name) for name in ("j1", "j2")]
    assert found.subject.is_tenant
    assert found.normal == pytest.approx(sum(one.normal for one in alone))
    assert found.devices == pytest.approx(sum(one.devices for one in alone))
    assert "with 2 jobs" in paragraphs(found)[0]


def test_a_job_is_meant_where_a_tenant_has_the_same_id_unless_asked_otherwise() -> None:
    snap = jobs(
        {"id": "same", "speeds": {"v100": 1}},
        {"id": "other", "tenant": "same", "speeds": {"v100": 1}},
        v100=1,
    )
    assert not why("max-min", snap, "same").subject.is_tenant
    assert why("max-min", snap, "same", tenant=True).subject.is_tenant


def test_an_unknown_name_is_answered_with_those_near_it() -> None:
    snap = jobs(*({"id": f"job-{i}", "speeds": {"v100": 1}} for i in (3, 12)), v100=1)
    with pytest.raises(InputError, match="such as job-12") as caught:
        why("max-min", snap, "jobb-12")
    assert "there is no job or tenant 'jobb-12'" in str(caught.value)
    with pytest.raises(InputError, match="give some jobs"):
        why("max-min", jobs(v100=1), "job-1")


def test_what_the_prices_foretell_is_the_slope_of_small_changes() -> None:
    """Against solves with a little more weight; every job at the least level is tried."""
    rng = np.random.default_rng(0)
    tried = 0
    for _ in range(25):
        n = int(rng.integers(3, 7))
        rows = rng.uniform(0.3, 4, (n, 3)).tolist()
        weights = rng.choice([1.0, 2.0], n).tolist()
        snap = market(rows, devices=[1, 1, 2], weights=weights)
        allocation = policy_named("max-min").allocate(snap)
        for i in range(n):
            prices = Prices.of(snap, allocation, find(snap, f"j{i + 1}"))
            if prices is None or prices.stretch is None:
                continue
            more = list(weights)
            more[i] *= 1.0001
            after = policy_named("max-min").allocate(market(rows, devices=[1, 1, 2], weights=more))
            before, now = ((snap.speed[i] * a.share[i]).sum() for a in (allocation, after))
            assert prices.stretch == pytest.approx((now / before - 1) / 0.0001, abs=2e-3)
            tried += 1
    assert tried > 30
