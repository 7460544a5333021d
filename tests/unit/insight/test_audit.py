"""Audits find what is known to be there, and nothing where there is nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import cvxpy
import numpy as np
import pytest

from fairlead.insight.audit.audit import Audit, audit
from fairlead.insight.audit.thresholds import Limit
from fairlead.insight.audit.witnesses import witness
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError, UsageError
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.job import Tenant
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.policies.base import accelerator_columns, job_allocation
from fairlead.policies.rules.priority import policy_named

PAPER = [[1, 2], [1, 3], [1, 4]]
"""OEF §2.4"""
TWO = [[1, 2], [1, 5]]
"""OEF §3.1"""
SLACK = [[1, 2, 5], [1, 4, 6], [1, 5, 8]]


def market(
    speeds: Sequence[Sequence[float]],
    *,
    devices: list[int] | None = None,
    weights: list[float] | None = None,
    gangs: list[int] | None = None,
) -> Snapshot:
    """Return one tenant u1, u2, … with one job for each row of speeds."""
    kinds = [f"a{j}" for j in range(len(speeds[0]))]
    n = len(speeds)
    jobs = tuple(
        InstanceJob(
            id=f"j{i + 1}",
            tenant=f"u{i + 1}",
            workload=f"w{i + 1}",
            gang=(gangs or [1] * n)[i],
            weight=(weights or [1.0] * n)[i],
            speeds={k: float(v) for k, v in zip(kinds, row, strict=True)},
        )
        for i, row in enumerate(speeds)
    )
    tenants = tuple(Tenant(f"u{i + 1}", weight=w) for i, w in enumerate(weights or [1.0] * n))
    counts = dict(zip(kinds, devices or [1] * len(kinds), strict=True))
    return snapshot_of(Instance(Cluster.of(counts), jobs, tenants))


def measure(name: str, snap: Snapshot, **more: object) -> Audit:
    return audit(snap, policy_named(name), name=name, **more)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Given:
    """A policy for tenants that gives fixed devices, whatever is reported."""

    devices: FloatArray

    def allocate(self, snap: Snapshot) -> Allocation:
        assert len(snap.tenants) == len(self.devices)
        return Allocation(
            members=np.arange(len(self.devices)).reshape(-1, 1),
            share=self.devices,
            columns=accelerator_columns(self.devices.shape[1]),
            rows="tenants",
            measure="devices",
        )


@dataclass(frozen=True)
class Shares:
    """A policy for jobs that gives fixed shares."""

    share: FloatArray

    def allocate(self, snap: Snapshot) -> Allocation:
        return job_allocation(snap, self.share)


def test_oef_pays_for_under_reports_and_not_for_over_reports() -> None:
    found = measure("oef", market(TWO))
    assert found.lies is not None
    assert found.lies.under is not None
    assert found.parties.names[found.lies.under.who] == "u2"
    assert found.lies.under.gain > 0.556
    assert found.figures()["over_report"] < 1e-4
    # The lie of 2.5 instead of 5: 10/3 instead of 15/7.
    assert found.received.value[1] == pytest.approx(15 / 7)
    assert found.court.gain(1, np.array([1.0, 0.5])) == pytest.approx(10 / 3 / (15 / 7) - 1)


def test_the_lie_that_is_printed_gains_what_is_said_when_it_is_told() -> None:
    for name in ("oef", "oef-cooperative", "trading", "max-min", "makespan"):
        snap = market(PAPER)
        found = measure(name, snap, solves=80)
        assert found.lies is not None
        for lie in (found.lies.over, found.lies.under):
            if lie is None:
                continue
            told = found.reported(lie)
            speeds = snap.speed.copy()
            for job, reported in told.items():
                for kind, value in reported.items():
                    column = snap.cluster.accelerators.index(kind)
                    speeds[int(job[1:]) - 1, column] = value
            lied = policy_named(name).allocate(market(speeds.tolist()))
            share = lied.share[lie.who]
            true = float((snap.speed[lie.who] * share).sum())
            honest = policy_named(name).allocate(snap).share[lie.who]
            was = float((snap.speed[lie.who] * honest).sum())
            assert true / was - 1 == pytest.approx(lie.gain, rel=1e-6)


def test_cooperative_oef_leaves_slack_where_envy_binds() -> None:
    found = measure("oef-cooperative", market(SLACK), solves=0)
    assert found.received.value == pytest.approx([8 / 3, 4, 31 / 6])
    assert found.slack.gain == pytest.approx([0, 0, 1 / 6], abs=1e-6)
    assert found.slack.slack == pytest.approx((1 / 6) / (8 / 3 + 4 + 31 / 6), rel=1e-6)
    assert found.envy.worst <= 1e-9
    assert "u3 could have 0.1667 more" in witness(found, "pareto_slack")


def test_slack_comes_with_an_allocation_that_has_it() -> None:
    found = measure("oef-cooperative", market(SLACK), solves=0)
    use = found.slack.use
    assert use is not None
    assert (use.sum(axis=0) <= found.parties.capacity + 1e-9).all()
    value = (use * found.parties.gain).sum(axis=1)
    assert (value >= found.received.value - 1e-7).all()
    assert value.sum() - found.received.value.sum() == pytest.approx(1 / 6, rel=1e-6)


def test_trading_lets_the_third_envy_the_second() -> None:
    found = measure("trading", market(PAPER), solves=0)
    assert found.received.value == pytest.approx([1.17777778, 1.4, 1.77777778])
    names = found.parties.names
    assert (names[found.envy.who], names[found.envy.whom]) == ("u3", "u2")
    assert found.envy.worst == pytest.approx(0.05)


def test_gavel_lets_the_third_envy_the_second_and_pays_liars() -> None:
    found = measure("max-min", market(PAPER))
    assert found.envy.worst == pytest.approx(0.05)
    assert found.slack.slack == 0
    assert found.figures()["over_report"] > 0.05


def test_whether_gavel_is_pareto_efficient_depends_on_the_feasible_set() -> None:
    snap = market(PAPER)
    share = policy_named("max-min").allocate(snap).share
    assert audit(snap, Shares(share), solves=0).slack.slack == 0
    unlimited = audit(snap, Given(share), solves=0)
    assert unlimited.received.value == pytest.approx([12 / 11, 16 / 11, 20 / 11])
    assert unlimited.slack.slack == pytest.approx(1 / 72, rel=1e-6)
    assert unlimited.parties.feasible_set != audit(snap, Shares(share)).parties.feasible_set


def test_envy_planted_by_hand_is_found() -> None:
    snap = market(PAPER, devices=[3, 3])
    fair = policy_named("oef-cooperative").allocate(snap).share
    assert audit(snap, Given(fair), solves=0).envy.worst <= 1e-9
    swapped = fair[[2, 1, 0]]
    found = audit(snap, Given(swapped), solves=0)
    assert (found.envy.who, found.envy.whom) == (2, 0)
    own, other = swapped[2] @ [1, 4], swapped[0] @ [1, 4]
    assert found.envy.worst == pytest.approx(other / own - 1)


def test_who_has_twice_the_weight_may_have_twice_the_devices() -> None:
    snap = market([[1, 2], [1, 2]], weights=[1, 2])
    thirds = np.array([[1 / 3, 1 / 3], [2 / 3, 2 / 3]])
    found = audit(snap, Given(thirds), solves=0)
    assert found.envy.worst == pytest.approx(0, abs=1e-9)
    assert found.incentive.gap == pytest.approx([0, 0], abs=1e-9)
    halves = audit(snap, Given(np.full((2, 2), 0.5)), solves=0)
    assert (halves.envy.who, halves.envy.whom) == (1, 0)
    assert halves.envy.worst == pytest.approx(1.0)
    assert halves.incentive.worst == pytest.approx(1 / 3)


def test_a_job_cannot_envy_more_time_than_it_has() -> None:
    # Two devices each would be two units of time for a gang of one.
    snap = market([[1, 1], [1, 1]], devices=[2, 2], gangs=[1, 2])
    found = audit(snap, Shares(np.array([[1.0, 0], [0, 1.0]])), solves=0)
    assert found.envy.table[0, 1] == pytest.approx(0)
    assert found.envy.table[1, 0] == pytest.approx(-0.5)


def test_who_gets_nothing_has_a_figure_too() -> None:
    found = audit(market(TWO), Given(np.array([[1.0, 1.0], [0, 0]])), solves=0)
    assert found.envy.worst > 1e5
    assert np.isfinite(found.envy.worst)
    assert found.incentive.who == 1
    found.as_dict()


def test_efficiency_is_that_of_the_greatest_total() -> None:
    everything = np.array([[1.0, 0], [0, 0], [0, 1.0]])
    assert audit(market(PAPER), Given(everything), solves=0).efficiency == pytest.approx(1.0)
    assert measure("oef", market(TWO), solves=0).efficiency == pytest.approx(30 / 7 / 6)


@pytest.mark.parametrize("seed", range(5))
def test_slack_and_efficiency_agree_with_cvxpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, kinds = int(rng.integers(2, 6)), int(rng.integers(2, 4))
    gangs = rng.choice([1, 2], n).tolist()
    snap = market(rng.uniform(0.5, 4, (n, kinds)).tolist(), devices=[2, 3, 4][:kinds], gangs=gangs)
    share = rng.uniform(0, 0.15, (n, kinds))
    found = audit(snap, Shares(share), solves=0)
    gain = snap.speed * snap.gang[:, None]
    gain /= (snap.speed * snap.capacity).sum(axis=1)[:, None] / snap.capacity.sum()
    own = (gain * share).sum(axis=1)
    x = cvxpy.Variable((n, kinds), nonneg=True)
    value = cvxpy.sum(cvxpy.multiply(gain, x), axis=1)
    limits = [cvxpy.sum(x, axis=1) <= 1, snap.gang @ x <= snap.capacity]
    free = cvxpy.Problem(cvxpy.Maximize(cvxpy.sum(value)), limits).solve()
    spared = cvxpy.Problem(cvxpy.Maximize(cvxpy.sum(value)), [*limits, value >= own]).solve()
    assert found.efficiency == pytest.approx(own.sum() / free, rel=1e-5)
    assert found.slack.slack == pytest.approx((spared - own.sum()) / own.sum(), rel=1e-4)


def test_tenants_take_part_with_the_sum_of_their_jobs_when_asked() -> None:
    snap = market(PAPER, devices=[2, 2])
    two = replace(snap, tenants=snap.tenants[:2], profiles=replace(snap.profiles))
    two.profiles.tenant[:] = [0, 1, 1]
    found = measure("max-min", two, by="tenants", solves=40)
    jobs = measure("max-min", two, solves=0)
    assert found.parties.names == ("u1", "u2")
    assert found.received.value == pytest.approx(
        [jobs.received.value[0], jobs.received.value[1:].sum()]
    )
    assert found.lies is not None


def test_tenants_rows_cannot_be_audited_by_job() -> None:
    with pytest.raises(UsageError, match="tenants"):
        measure("oef", market(PAPER), by="jobs")


def test_no_jobs_are_refused() -> None:
    empty = snapshot_of(Instance(Cluster.of({"v100": 1})))
    with pytest.raises(InputError, match="no jobs"):
        measure("max-min", empty)


def test_a_policy_that_minds_the_scale_is_lied_to_about_it() -> None:
    found = measure("makespan", market(TWO))
    assert found.lies is not None
    assert found.lies.under is not None
    assert (found.lies.under.times < 1).all()


def test_alike_participants_are_asked_once() -> None:
    found = measure("oef", market([[1, 2]] * 6 + [[1, 3]] * 4))
    assert found.lies is not None
    assert found.lies.asked == 2
    assert found.lies.gain["under"][:6] == pytest.approx(found.lies.gain["under"][0])


def test_the_search_keeps_to_its_number_of_solves() -> None:
    rng = np.random.default_rng(3)
    snap = market(np.sort(rng.uniform(1, 5, (30, 4)), axis=1).tolist(), devices=[8] * 4)
    for solves in (50, 200):
        told: list[int] = []
        found = measure("trading", snap, solves=solves, progress=lambda i, _, t=told: t.append(i))
        assert found.lies is not None
        assert found.lies.solves <= solves + 12
        assert len(told) > solves // 2
        assert found.lies.asked >= 1


def test_the_search_finds_about_what_blind_tries_find() -> None:
    rng = np.random.default_rng(7)
    ratio = []
    for name in ("trading", "oef-cooperative", "trading"):
        snap = market(np.sort(rng.uniform(1, 5, (4, 3)), axis=1).tolist(), devices=[2, 2, 2])
        found = measure(name, snap)
        slowest = found.court.slowest()
        for sign, figure in ((1, "over_report"), (-1, "under_report")):
            blind = 0.0
            for _ in range(150):
                who = int(rng.integers(4))
                times = np.exp(sign * rng.uniform(0, 1.5, 3))
                times[slowest[who]] = 1.0
                blind = max(blind, found.court.gain(who, times))
            ratio.append((found.figures()[figure] + 1e-6) / (blind + 1e-6))
    # Gains jump, so that a blind try may be lucky; but not often, nor by much.
    assert min(ratio) > 0.6
    assert np.median(ratio) > 0.95


def test_audits_are_the_same_every_time() -> None:
    first, second = (measure("trading", market(SLACK), solves=100).as_dict() for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("envy", "is not a figure"),
        ("envy=1", "is not a figure"),
        ("jealousy>1", "no figure 'jealousy'"),
        ("envy>many", "not a number"),
        ("envy>nan", "not a number"),
    ],
)
def test_limits_that_make_no_sense_are_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        Limit.parse(text)


def test_a_limit_says_figure_and_witness_when_it_is_broken() -> None:
    found = measure("trading", market(PAPER), solves=0)
    line = Limit.parse("envy > 0.01").broken(found)
    assert line is not None
    assert "envy is 0.05" in line
    assert "u3" in line
    assert "u2" in line
    assert Limit.parse("envy>=0.06").broken(found) is None
    assert Limit.parse("efficiency<0.9").broken(found) is not None
    assert Limit.parse("pareto-slack<=0").broken(found) is not None
    with pytest.raises(UsageError, match="--lies 0"):
        Limit.parse("over_report>0").broken(found)
