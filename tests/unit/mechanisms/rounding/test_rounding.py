"""OEF's placement in small cases."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.properties.mechanisms.test_rounding import DebtRecorder, watched

from fairlead.mechanisms.factory import create_mechanism
from fairlead.mechanisms.rounding.apportionment import payable_deviations
from fairlead.mechanisms.rounding.mechanism import Rounding
from fairlead.mechanisms.rounding.memory import Deviations
from fairlead.model.cluster import Cluster, Node
from fairlead.model.errors import UsageError
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.job import Job
from fairlead.model.plan import Plan
from fairlead.model.snapshot import MIXED, Snapshot, snapshot_of
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.model.tenants.tenant import Tenant
from fairlead.policies.max_min import MaxMin
from fairlead.policies.oef import Oef
from fairlead.sim.scenario import Scenario

SPEEDS = SpeedTable(
    {
        SpeedKey(workload, 1, accelerator): speed
        for workload, row in {"even": (1.0, 2.0), "keen": (1.0, 4.0)}.items()
        for accelerator, speed in zip(("k80", "v100"), row, strict=True)
    }
)


def job(name: str, gang: int = 1, workload: str = "even", **more: Any) -> Job:
    """A job that never ends; its tenant is the first letter of its name."""
    steps = more.pop("total_steps", 10**9)
    return Job(id=name, workload=workload, tenant=name[0], gang=gang, total_steps=steps, **more)


def run(
    cluster: Cluster | dict[str, int],
    jobs: list[Job],
    rounds: int,
    *,
    tenants: tuple[Tenant, ...] = (),
    spans: str = "idle",
) -> DebtRecorder:
    where = cluster if isinstance(cluster, Cluster) else Cluster.of(cluster, per_node=4)
    return watched(
        Scenario(
            cluster=where,
            speeds=SPEEDS,
            jobs=jobs,
            mechanism=Rounding(Oef(), spans=spans),
            tenants=tenants,
        ),
        rounds,
    )


def times_run(watch: DebtRecorder, jobs: list[Job]) -> dict[str, int]:
    return {job.id: sum(n in runs for runs in watch.runs) for n, job in enumerate(jobs)}


def test_rounding_both_up_would_take_four_of_three_devices() -> None:
    """Half of three devices each: round(1.5) is 2 for both, so they have 2 in turn."""
    jobs = [job(f"{tenant}{i}") for tenant in "ab" for i in range(4)]
    watch = run({"k80": 3}, jobs, 10)
    for runs in watch.runs:
        assert sorted([sum(n < 4 for n in runs), sum(n >= 4 for n in runs)]) == [1, 2]
    assert watch.had == {(0, 0): 15.0, (1, 0): 15.0}


def test_tenant_with_less_than_its_gang_has_none_or_all_of_it() -> None:
    """One device of four is a's; its gang of four runs in every fourth round (OEF §4.3)."""
    jobs = [job("a0", gang=4), *(job(f"{t}{i}") for t in "bcd" for i in range(4))]
    watch = run({"k80": 4}, jobs, 40)
    assert times_run(watch, jobs)["a0"] == 10
    assert watch.had[1, 0] == watch.had[2, 0] == watch.had[3, 0] == 40
    assert watch.memory.forgiven.sum() < 1e-9


def test_job_that_went_longest_without_service_comes_first() -> None:
    jobs = [job(f"a{i}") for i in range(3)]
    watch = run({"k80": 1}, jobs, 9)
    assert [next(iter(runs)) for runs in watch.runs] == [0, 1, 2] * 3


def test_first_come_tenants_run_their_first_job_on() -> None:
    jobs = [job(f"a{i}") for i in range(3)]
    watch = run({"k80": 1}, jobs, 9, tenants=(Tenant("a", inner="fifo"),))
    assert [next(iter(runs)) for runs in watch.runs] == [0] * 9


def test_job_of_twice_the_weight_waits_half_as_long() -> None:
    jobs = [job("a0", weight=2.0), job("a1"), job("a2")]
    ran = times_run(run({"k80": 1}, jobs, 40), jobs)
    assert ran["a0"] > 1.5 * ran["a1"]
    assert ran["a1"] == pytest.approx(ran["a2"], abs=1)


def test_higher_priority_has_all_it_can_use_first() -> None:
    jobs = [job("a0", priority=1), job("a1"), job("b0"), job("b1", priority=1)]
    scenario = Scenario(
        cluster=Cluster.of({"k80": 2}), speeds=SPEEDS, jobs=jobs, mechanism=create_mechanism("oef")
    )
    ran = times_run(watched(scenario, 10), jobs)
    assert ran == {"a0": 10, "a1": 0, "b0": 0, "b1": 10}


def test_jobs_that_all_run_stay_where_they_are() -> None:
    jobs = [job("a0", gang=2), job("a1"), job("b0", gang=2), job("b1"), job("b2")]
    watch = run({"k80": 8}, jobs, 10)
    assert all(runs == watch.runs[0] for runs in watch.runs)


def test_gangs_that_can_never_share_the_devices_miss_alike() -> None:
    """a's gang needs all four devices, b has two jobs of one; both are entitled to two devices.

    They can have p of all rounds and 1 - p: alike is 4p = 2(1 - p), a third.
    """
    jobs = [job("a0", gang=4), job("b0"), job("b1")]
    watch = run({"k80": 4}, jobs, 90)
    assert times_run(watch, jobs)["a0"] == pytest.approx(30, abs=3)
    assert watch.had[1, 0] == pytest.approx(120, abs=6)
    assert watch.memory.forgiven.sum() > 50
    assert watch.tracked <= 1 + 1e-9


SIX = Cluster((Node("n0", ("k80",) * 6), Node("n1", ("v100",) * 6)))


def test_gang_spans_accelerators_only_where_devices_would_be_idle() -> None:
    """Two gangs of four leave two devices of each accelerator; two workers wait for two."""
    two = [job(f"{tenant}0", gang=4) for tenant in "ab"]
    three = [*two, job("c0", gang=4)]
    assert run(SIX, two, 6).memory.hit_workers == 0
    spanning = run(SIX, three, 6)
    assert spanning.memory.hit_workers == 6 * 2
    assert spanning.memory.workers == 6 * 12
    for runs in spanning.runs:
        on = [sorted(d // 6 for d in devices) for devices in runs.values()]
        assert sorted(on) == [[0, 0, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]]
    assert all(len(runs) == 2 for runs in run(SIX, three, 6, spans="never").runs)


def test_gang_uses_its_tenants_devices_of_several_accelerators_if_told_to() -> None:
    """Each has two devices of each accelerator; as in the paper no gang has enough of one."""
    jobs = [job("a0", gang=4), job("b0", gang=4)]
    watch = run({"k80": 4, "v100": 4}, jobs, 6, spans="own")
    assert watch.memory.workers == 6 * 8
    assert watch.memory.hit_workers == 6 * 4
    assert run({"k80": 4, "v100": 4}, jobs, 6).memory.hit_workers == 0


def test_estimated_and_placed_throughput_are_kept_for_every_tenant() -> None:
    """Nobody gains more from a V100, so each has half of 4 + 4 × 2; spanning costs what is
    placed."""
    jobs = [job("a0", gang=4), job("b0", gang=4)]
    estimated, placed = run({"k80": 4, "v100": 4}, jobs, 13).throughputs
    np.testing.assert_allclose(estimated, 6.0)
    np.testing.assert_allclose(placed, 6.0)
    three = [*jobs, job("c0", gang=4)]
    estimated, placed = run(SIX, three, 40).throughputs
    assert estimated.sum() == pytest.approx(18.0)
    # A gang on each accelerator, 4 + 8, and one that runs at the K80's speed, 4.
    assert placed.sum() == pytest.approx(16.0)


def test_debts_are_cut_only_where_they_cannot_be_paid() -> None:
    """One device, two tenants with half of it each: only one can be owed the next round."""
    half, one, single = np.full((2, 1), 0.5), np.ones(2, dtype=np.int64), np.array([1])
    fine = np.array([[0.5], [-0.5]])
    np.testing.assert_array_equal(payable_deviations(fine, half, one, single), fine)
    too_much = np.array([[0.6], [0.6]])
    kept = payable_deviations(too_much, half, one, single)
    assert kept[:, 0] == pytest.approx([0.5, 0.5], abs=0.01)


# -- devices ------------------------------------------------------------------------------------


def with_held_devices(snap: Snapshot, held: dict[int, tuple[int, ...]]) -> Snapshot:
    """Return the snapshot with rows on these devices."""
    holds, on, lease = snap.holds.copy(), snap.on.copy(), snap.lease.copy()
    for row, devices in held.items():
        holds[0, list(devices)] = row
        accelerators = set(snap.cluster.accelerator_of[list(devices)].tolist())
        on[row] = accelerators.pop() if len(accelerators) == 1 else MIXED
        lease[row] = 100 + row
    return replace(snap, holds=holds, on=on, lease=lease)


def planned(snap: Snapshot, memory: Deviations | None = None) -> tuple[Plan, Deviations]:
    mechanism = Rounding(Oef())
    return mechanism.plan(snap, memory or mechanism.initial())


def three_jobs(gangs: tuple[int, int, int]) -> Snapshot:
    jobs = tuple(
        InstanceJob(id=str(i), tenant="t", gang=gang, speeds={"k80": float(gang)})
        for i, gang in enumerate(gangs)
    )
    return snapshot_of(Instance(Cluster.of({"k80": 4}, per_node=2), jobs, (Tenant("t"),)))


def test_small_jobs_make_way_for_a_gang_that_needs_one_node() -> None:
    """Two jobs of one device sit on two nodes of two; one moves so that the gang has a node."""
    snap = with_held_devices(three_jobs((1, 1, 2)), {0: (0,), 1: (2,)})
    plan, _ = planned(snap)
    placed = {p.job: p.devices for p in plan.start}
    assert placed[2] in ((0, 1), (2, 3))
    assert len(plan.stop) == 1
    assert len(placed) == 2


def test_nobody_moves_where_a_node_is_free() -> None:
    snap = with_held_devices(three_jobs((1, 1, 2)), {0: (0,), 1: (1,)})
    plan, _ = planned(snap)
    assert not len(plan.stop)
    assert [(p.job, p.devices) for p in plan.start] == [(2, (2, 3))]


def test_freed_device_goes_to_another_job_of_the_tenant_that_had_it() -> None:
    jobs = tuple(
        InstanceJob(id=name, tenant=name[0], speeds={"k80": 1.0})
        for name in ("a0", "a1", "a2", "b0", "b1", "b2")
    )
    snap = snapshot_of(Instance(Cluster.of({"k80": 4}), jobs, (Tenant("a"), Tenant("b"))))
    plan, memory = planned(snap)
    runs = {p.job: p.devices for p in plan.start}
    assert sorted(runs) == [0, 1, 3, 4]
    for gone, next_ in ((1, 2), (4, 5)):
        keep = np.array([n for n in range(6) if n != gone])
        left = replace(snap.subset(keep, snap.devices), room=None, changes=1)
        left = with_held_devices(
            left, {int(np.searchsorted(keep, n)): d for n, d in runs.items() if n != gone}
        )
        more = Rounding(Oef()).refill(left, memory, np.array(runs[gone]))
        assert [p.job for p in more] == [next_]


# -- errors -------------------------------------------------------------------------------------


def test_policies_with_rows_of_jobs_are_refused() -> None:
    with pytest.raises(UsageError, match="leave out --mechanism"):
        Rounding(MaxMin())


def test_unknown_ways_to_span_are_refused() -> None:
    with pytest.raises(UsageError, match="never, idle, own"):
        create_mechanism("oef", "rounding:spans=always")


@pytest.mark.parametrize("policy", ["oef", "oef-cooperative", "tenant-max-min", "trading"])
def test_tenant_policies_are_realised_by_rounding(policy: str) -> None:
    assert isinstance(create_mechanism(policy), Rounding)
