"""Options of packed jobs and placements, shares of units, and unsupported options."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fairlead.cli.main import app
from fairlead.mechanisms.gandiva.packing import unfit_pairs
from fairlead.model.allocation import Column
from fairlead.model.capabilities import capabilities_of
from fairlead.model.cluster import Accelerator, Cluster
from fairlead.model.errors import InputError, UsageError
from fairlead.model.instance import Instance, InstanceJob, Pair
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.model.speeds.key import scoped_workload
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.model.tenants.tenant import Tenant
from fairlead.policies._packing.shares import pair_two_classes, pair_within_class
from fairlead.policies._packing.table import UnitRules, UnitTable, unit_table
from fairlead.policies.max_min import MaxMin
from fairlead.registry import create
from fairlead.solve.options.problem import NO_PARTNER


def _table(snap: Snapshot, *, packed: bool = True, placement: bool = False) -> UnitTable:
    none = np.zeros((len(snap.job), 0))
    return unit_table(snap, none, UnitRules(packed, placement))


def _options(table: UnitTable) -> set[tuple[int, int, Column]]:
    columns = [table.columns[c] for c in table.column.tolist()]
    return set(zip(table.first.tolist(), table.second.tolist(), columns, strict=True))


def _snapshot(
    jobs: list[InstanceJob], cluster: Cluster, speeds: dict[SpeedKey, float] | None = None
) -> Snapshot:
    snap = snapshot_of(Instance(cluster, tuple(jobs)))
    return replace(snap, speeds=None if speeds is None else SpeedTable(speeds))


ONE = Cluster.of({"v100": 2})
ALIKE = {
    SpeedKey(name, 1, "v100", partner=partner): speed
    for name in "ab"
    for partner, speed in ((None, 4.0), ("a", 3.0), ("b", 3.0))
}
"""two workloads that lose a quarter of their speed beside each other"""


def test_alike_jobs_are_one_class_and_pair_with_each_other_only_if_there_are_two() -> None:
    speeds = {
        SpeedKey("a", 1, "v100"): 4.0,
        SpeedKey("b", 1, "v100"): 4.0,
        SpeedKey("a", 1, "v100", partner="a"): 3.0,
        SpeedKey("b", 1, "v100", partner="b"): 3.0,
    }
    jobs = [
        InstanceJob(id=name, workload=name[0], speeds={"v100": 4.0}) for name in ("a1", "b", "a2")
    ]
    table = _table(_snapshot(jobs, ONE, speeds))
    v100 = Column(0)
    assert table.classes.count.tolist() == [2, 1]
    assert _options(table) == {(0, NO_PARTNER, v100), (1, NO_PARTNER, v100), (0, 0, v100)}


@pytest.mark.parametrize(
    ("together", "pays"), [((2.1, 5.0), True), ((2.0, 5.0), False), ((0.0, 9.0), False)]
)
def test_a_pair_is_an_option_only_if_relative_speeds_sum_to_more_than_one(
    together: tuple[float, float], pays: bool
) -> None:
    speeds = {
        SpeedKey("a", 1, "v100"): 4.0,
        SpeedKey("b", 1, "v100"): 10.0,
        SpeedKey("a", 1, "v100", partner="b"): together[0],
        SpeedKey("b", 1, "v100", partner="a"): together[1],
    }
    jobs = [
        InstanceJob(id="a", workload="a", speeds={"v100": 4.0}),
        InstanceJob(id="b", workload="b", speeds={"v100": 10.0}),
    ]
    assert ((0, 1, Column(0)) in _options(_table(_snapshot(jobs, ONE, speeds)))) is pays


def test_measured_speeds_of_a_pair_overrule_the_table_for_the_tenants_that_measured_them() -> None:
    tenants = ("x", "x", "y", "z", "z")
    jobs = [
        InstanceJob(id=str(i), tenant=tenant, workload=workload, speeds={"v100": 4.0})
        for i, (tenant, workload) in enumerate(zip(tenants, "aabbc", strict=True))
    ]
    owners = tuple(Tenant(name) for name in "xyz")
    snap = snapshot_of(Instance(ONE, tuple(jobs), owners))
    snap = replace(snap, speeds=SpeedTable(ALIKE))
    xa, yb, zc = (scoped_workload(*scope, "") for scope in (("x", "a"), ("y", "b"), ("z", "c")))

    def pairs(*rows: tuple[str, str, float]) -> set[tuple[str, ...]]:
        measured = {SpeedKey(own, 1, "v100", partner=other): speed for own, other, speed in rows}
        assert snap.speeds is not None
        table = _table(replace(snap, speeds=snap.speeds.with_measured({}, measured)))
        job_of = [jobs[row] for row in table.classes.representative.tolist()]
        return {
            tuple(sorted(job_of[k].tenant + job_of[k].workload for k in pair))
            for pair in zip(table.first.tolist(), table.second.tolist(), strict=True)
            if pair[1] != NO_PARTNER
        }

    # Jobs of all tenants are alike until one of them has measured a pair.
    assert pairs() == {("xa", "xa"), ("xa", "yb"), ("yb", "yb")}
    everything = {("xa", "xa"), ("xa", "yb"), ("xa", "zb"), ("yb", "zb")}
    assert pairs((xa, yb, 3.1)) == everything
    assert pairs((xa, yb, 0.9)) == everything - {("xa", "yb")}
    assert pairs((xa, yb, 0.0)) == everything - {("xa", "yb")}
    # A workload that the table lacks is packed as soon as the pair was measured.
    assert pairs((zc, xa, 2.5), (xa, zc, 2.0)) == pairs((zc, xa, 2.5)) | {("xa", "zc")}
    assert ("xa", "zc") not in pairs((zc, xa, 2.5))
    memory = SpeedTable(ALIKE).with_measured({}, {SpeedKey(xa, 1, "v100", partner=yb): 0.0})
    assert unfit_pairs(replace(snap, speeds=memory)) == {(0, 2), (1, 2)}
    assert unfit_pairs(snap) == set()


@pytest.mark.parametrize(("needs", "fits"), [((6.0, 10.0), True), ((6.1, 10.0), False)])
def test_a_pair_that_exceeds_the_memory_of_a_device_is_no_option(
    needs: tuple[float, float], fits: bool
) -> None:
    cluster = Cluster.of({"v100": 2}, details={"v100": Accelerator("v100", 16.0)})
    jobs = [InstanceJob(id=name, workload=name, speeds={"v100": 4.0}) for name in "ab"]
    snap = _snapshot(jobs, cluster, ALIKE)
    assert (0, 1, Column(0)) in _options(_table(snap))
    declared = replace(snap.profiles, memory_gib=np.array(needs))
    assert ((0, 1, Column(0)) in _options(_table(replace(snap, profiles=declared)))) is fits


def test_gangs_pack_only_with_equal_gangs() -> None:
    speeds = {SpeedKey("a", g, "v100"): 4.0 for g in (1, 2)} | {
        SpeedKey("a", g, "v100", partner="a"): 3.9 for g in (1, 2)
    }
    jobs = [
        InstanceJob(id=str(i), workload="a", gang=g, speeds={"v100": 4.0})
        for i, g in enumerate((1, 2, 2))
    ]
    result = _options(_table(_snapshot(jobs, ONE, speeds)))
    assert {(a, b) for a, b, _ in result if b != NO_PARTNER} == {(1, 1)}


def test_pairs_of_an_instance_belong_to_their_jobs_only() -> None:
    jobs = tuple(InstanceJob(id=name, speeds={"v100": 4.0}) for name in "abcd")
    pair = Pair(("a", "c"), {"v100": (3.0, 2.0)})
    table = _table(snapshot_of(Instance(ONE, jobs, pairs=(pair,))))
    # b and d are alike; a and c are unlike all other jobs.
    assert table.classes.index_of_member.tolist() == [0, 1, 2, 1]
    assert [(a, b) for a, b, _ in _options(table) if b != NO_PARTNER] == [(0, 2)]


def test_an_instance_pair_of_unequal_gangs_is_rejected() -> None:
    def pair_of(gang: int) -> Instance:
        jobs = (
            InstanceJob(id="a", speeds={"v100": 4.0}),
            InstanceJob(id="b", gang=gang, speeds={"v100": 4.0}),
        )
        two = Cluster.of({"v100": 2})
        return Instance(two, jobs, pairs=(Pair(("a", "b"), {"v100": (3.0, 2.0)}),))

    with pytest.raises(InputError, match=r"a\+b cannot share devices: gangs of 1 and 2") as caught:
        pair_of(2)
    assert caught.value.field == "pairs[0].speeds.v100"
    # A tried change makes the gangs unequal after the instance was read.
    snap = snapshot_of(pair_of(1))
    tried = replace(snap, profiles=replace(snap.profiles, gang=np.array([1, 2])))
    with pytest.raises(InputError, match=r"a\+b cannot share devices"):
        MaxMin(packed=True).allocate(tried)


class TestPlacement:
    def test_a_gang_larger_than_every_node_is_spread_at_its_spread_speed(self) -> None:
        cluster = Cluster.of({"v100": 8, "k80": 4}, per_node={"v100": 2, "k80": 4})
        speeds = {
            SpeedKey("a", 4, "v100"): 8.0,
            SpeedKey("a", 4, "v100", "spread"): 3.0,
            SpeedKey("a", 4, "k80"): 2.0,
            SpeedKey("a", 4, "k80", "spread"): 1.0,
        }
        jobs = [InstanceJob(id="a", workload="a", gang=4, speeds={"v100": 8.0, "k80": 2.0})]
        snap = _snapshot(jobs, cluster, speeds)
        table = _table(snap, packed=False, placement=True)
        result = {
            (table.columns[c], speed)
            for c, speed in zip(table.column.tolist(), table.speed_first.tolist(), strict=True)
        }
        # Spread over K80s it would be slower than consolidated on the one node that holds four.
        assert result == {(Column(0, "spread"), 3.0), (Column(1, "consolidated"), 2.0)}
        allocation = MaxMin(placement=True).allocate(snap)
        assert allocation.speed is not None
        assert allocation.speed.tolist() == [3.0]

    def test_without_a_table_both_are_as_fast_and_consolidated_is_preferred(self) -> None:
        jobs = [InstanceJob(id="a", gang=2, speeds={"v100": 4.0})]
        table = _table(_snapshot(jobs, ONE), packed=False, placement=True)
        assert _options(table) == {(0, NO_PARTNER, Column(0, "consolidated"))}

    def test_both_columns_draw_on_one_capacity(self) -> None:
        cluster = Cluster.of({"v100": 4}, per_node=2)
        speeds = {
            SpeedKey("near", 2, "v100"): 4.0,
            SpeedKey("far", 4, "v100"): 4.0,
            SpeedKey("far", 4, "v100", "spread"): 4.0,
        }
        jobs = [
            InstanceJob(id="n", workload="near", gang=2, speeds={"v100": 4.0}),
            InstanceJob(id="f", workload="far", gang=4, speeds={"v100": 4.0}),
        ]
        allocation = MaxMin(placement=True).allocate(_snapshot(jobs, cluster, speeds))
        assert allocation.columns == (Column(0, "consolidated"), Column(0, "spread"))
        np.testing.assert_allclose((allocation.share.sum(axis=1) * [2, 4]).sum(), 4.0)
        assert allocation.share[0, 1] == 0.0
        assert allocation.share[1, 0] == 0.0


class TestPartners:
    @pytest.mark.parametrize(("n_a", "n_b"), [(1, 1), (3, 1), (2, 3), (4, 6), (7, 5)])
    def test_pairs_of_two_classes_give_every_member_the_same_part(
        self, n_a: int, n_b: int
    ) -> None:
        i, j, part = pair_two_classes(n_a, n_b)
        assert len(part) == n_a + n_b - np.gcd(n_a, n_b)
        assert (part > 0).all()
        np.testing.assert_allclose(np.bincount(i, part), 1 / n_a)
        np.testing.assert_allclose(np.bincount(j, part), 1 / n_b)

    @pytest.mark.parametrize("n", [2, 3, 4, 7])
    def test_pairs_within_a_class_give_every_member_the_same_part(self, n: int) -> None:
        i, j, part = pair_within_class(n)
        assert (i != j).all()
        assert part.sum() == pytest.approx(1.0)
        np.testing.assert_allclose(np.bincount(i, part, n) + np.bincount(j, part, n), 2 / n)


def test_pair_speeds_agree_with_the_speed_table() -> None:
    speeds = SpeedTable(
        {
            SpeedKey("a", 1, "v100"): 4.0,
            SpeedKey("b", 1, "v100"): 4.0,
            SpeedKey("a", 1, "v100", partner="b"): 3.0,
            SpeedKey("b", 1, "v100", partner="a"): 2.0,
        }
    )
    pairs = speeds.pairs(("v100", "k80"))
    for gang in (1, 2):
        for placement in ("consolidated", "spread"):
            block = pairs.block(gang, placement)
            for x in ("a", "b"):
                for y in ("a", "b"):
                    for j, accelerator in enumerate(("v100", "k80")):
                        wanted = speeds.speed(
                            x, (accelerator,) * gang, placement=placement, partner=y
                        )
                        assert block[pairs.index[x], pairs.index[y], j] == wanted


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("max-min:agnostic,packed", "measured speeds"),
        ("makespan:agnostic,placement", "speed only"),
        ("throughput:agnostic,packed", "measured speeds"),
        ("cost:agnostic,packed", "measured speeds"),
        ("cost-slo:agnostic,placement", "speed only"),
        ("sjf:packed", "slow the shortest job"),
        ("sjf:placement", "consolidates"),
        ("fifo:packed", "slow the job"),
        ("fifo:placement", "consolidates"),
        ("isolated:packed", "packs nothing"),
        ("isolated:placement", "static partition"),
    ],
)
def test_unsupported_options_are_rejected_with_the_reason(spec: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        create("policies", spec)


@pytest.mark.parametrize(
    "spec", ["max-min", "makespan", "throughput", "cost", "cost:sum", "cost-slo"]
)
def test_packed_and_placed_shares_are_realised_by_units(spec: str) -> None:
    more = "," if ":" in spec else ":"
    assert capabilities_of(create("policies", spec)).mechanism == "shares"
    for option in ("packed", "placement", "packed,placement"):
        policy = create("policies", f"{spec}{more}{option}")
        assert capabilities_of(policy).mechanism == "units"


@pytest.mark.parametrize(
    "spec",
    [
        f"{name}:{options}"
        for name in ("max-min", "makespan", "finish-time", "hierarchical", "throughput", "cost")
        for options in ("packed", "placement")
    ],
)
def test_a_cluster_that_is_down_or_has_no_jobs_gets_no_shares(spec: str) -> None:
    details = {"v100": Accelerator("v100", usd_per_hour=1.0)}
    jobs = (InstanceJob(id="a", speeds={"v100": 4.0}),)
    snap = snapshot_of(Instance(Cluster.of({"v100": 2}, details=details), jobs))
    down = replace(snap, capacity=np.zeros(1, dtype=np.int64), usable=np.zeros(0, dtype=np.int64))
    allocation = create("policies", spec).allocate(down)
    assert not allocation.share.any()
    assert allocation.speed is not None
    assert allocation.speed.tolist() == [0.0]
    empty = snapshot_of(Instance(snap.cluster, ()))
    assert create("policies", spec).allocate(empty).share.shape[0] == 0


def test_a_missing_price_is_named() -> None:
    jobs = (InstanceJob(id="a", speeds={"x1": 4.0}),)
    snap = snapshot_of(Instance(Cluster.of({"x1": 1}), jobs))
    for policy in ("cost", "cost:sum", "cost-slo"):
        with pytest.raises(InputError, match=r"price of x1.*usd_per_hour.x1"):
            create("policies", policy).allocate(snap)


def test_the_command_line_shows_pairs_placements_and_late_jobs(tmp_path: Path) -> None:
    file = tmp_path / "instance.json"
    file.write_text(
        json.dumps(
            {
                "cluster": {"v100": 1},
                "usd_per_hour": {"v100": 0.5},
                "jobs": [
                    {"id": "a", "speeds": {"v100": 4}, "steps_left": 100, "deadline_s": 10},
                    {"id": "b", "speeds": {"v100": 4}, "steps_left": 100},
                ],
                "pairs": [{"jobs": ["a", "b"], "speeds": {"v100": [3, 2]}}],
            }
        )
    )

    def run(policy: str, *more: str) -> str:
        done = CliRunner().invoke(
            app, ["allocate", "--instance", str(file), "--policy", policy, *more]
        )
        assert done.exit_code == 0, done.output
        return done.output

    packed = json.loads(run("max-min:packed", "--json"))
    assert "a+b" in packed["allocation"]
    assert set(packed["speeds"]) == {"a", "b"}
    assert "late" not in packed
    placed = json.loads(run("throughput:placement", "--json"))
    assert {accelerator for row in placed["allocation"].values() for accelerator in row} == {
        "v100/consolidated"
    }
    slo = json.loads(run("cost-slo", "--json"))
    assert slo["late"] == [{"job": "a", "needed": 10.0, "given": 4.0}]
    assert "a will be late" in run("cost-slo")
    assert "a+b" in run("max-min:packed")
