"""Rounds of packed jobs: partners, debts to units, placement."""

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from tests.unit.mechanisms.fixed_shares import (
    _LEAVES_IDLE,
    _NO_PROGRESS,
    ROUND_S,
    V2,
    Fixed,
    snapshot,
    started,
)

from fairlead.core import Scheduler, decode_event, encode_event
from fairlead.mechanisms._rounds.candidates import CandidateEntries
from fairlead.mechanisms._rounds.unit_deficits import UnitAccount, shares_of_units
from fairlead.mechanisms._rounds.unit_selection import UnitSelection
from fairlead.mechanisms.gavel import Gavel
from fairlead.mechanisms.shares import Shares
from fairlead.mechanisms.units import Units
from fairlead.model import events as ev
from fairlead.model.allocation import Allocation, Column
from fairlead.model.capabilities import Capabilities
from fairlead.model.cluster import Cluster
from fairlead.model.commands import ComputePlan, Preempt, Renew
from fairlead.model.errors import UsageError
from fairlead.model.job import Job
from fairlead.model.lease import Placement
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.model.tenants.tenant import Tenant
from fairlead.placement import plan_unit_moves
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario


def test_jobs_of_a_unit_share_its_devices() -> None:
    mechanism = Units(Fixed({(0, 1): [1.0], (2,): [1.0]}))
    plan, _ = mechanism.plan(snapshot(V2, [1, 1, 1]), mechanism.initial())
    on = started(plan)
    assert on[0] == on[1] != on[2]


def test_packed_gangs_hold_all_their_devices_together() -> None:
    cluster = Cluster.of({"v100": 6}, per_node=2)
    mechanism = Units(Fixed({(0, 1): [1.0], (2,): [1.0]}))
    plan, _ = mechanism.plan(snapshot(cluster, [2, 2, 4]), mechanism.initial())
    on = started(plan)
    assert on[0] == on[1]
    assert len(set(on[0] + on[2])) == 6


def test_no_job_runs_in_two_units_and_each_has_its_turn() -> None:
    """a+b and a+c have half the time each on one device, so they take turns."""
    cluster = Cluster.of({"v100": 1})
    mechanism = Units(Fixed({(0, 1): [0.5], (0, 2): [0.5]}), stay=0.0)
    memory, received = mechanism.initial(), np.zeros((3, 1))
    partners = []
    for turn in range(8):
        snap = snapshot(cluster, [1, 1, 1], starts_at=turn * ROUND_S, received_s=received.tolist())
        plan, memory = mechanism.plan(snap, memory)
        runs = set(started(plan))
        assert 0 in runs
        assert len(runs) == 2
        partners.append(runs - {0})
        received[list(runs)] += ROUND_S
    assert all(a != b for a, b in itertools.pairwise(partners))


def test_time_counts_for_the_unit_in_which_jobs_had_it() -> None:
    mechanism = Units(Fixed({(0, 1): [0.5], (0,): [0.25], (2,): [1.0]}))
    _, memory = mechanism.plan(snapshot(V2, [1, 1, 1]), mechanism.initial())
    ran = memory.ran.tolist()
    assert ran == [3, 3, 2], "units are the jobs alone, then the packed ones"
    later = snapshot(V2, [1, 1, 1], starts_at=400.0, received_s=[[360.0], [300.0], [360.0]])
    owed = memory.advanced_to(later).owed_s[:, 0]
    # Together for 300 s; job 0 ran on alone for 60 s.
    assert owed.tolist() == pytest.approx([100.0 - 60.0, 0.0, 400.0 - 360.0, 200.0 - 300.0])


def test_time_in_a_unit_whose_partner_ended_is_held_against_nobody() -> None:
    mechanism = Units(Fixed({(0, 1): [0.5], (0,): [0.5], (2,): [1.0]}))
    _, memory = mechanism.plan(snapshot(V2, [1, 1, 1]), mechanism.initial())
    assert memory.ran.tolist()[:2] == [3, 3]
    later = snapshot(
        V2, [1, 1], starts_at=ROUND_S, received_s=[[ROUND_S], [ROUND_S]], job=[0, 2], changes=2
    )
    account = memory.advanced_to(later)
    assert account.packed.shape == (0, 2)
    assert account.owed_s[:, 0].tolist() == pytest.approx([0.5 * ROUND_S, 0.0])


def test_reallocation_carries_what_is_owed_to_units_that_remain() -> None:
    policy = Fixed({(0, 1): [0.5], (1, 2): [0.25], (0,): [0.25]})
    mechanism = Units(policy)
    _, memory = mechanism.plan(snapshot(V2, [1, 1, 1]), mechanism.initial())
    policy.rows = {(0, 1): [0.5], (0, 2): [0.5]}
    later = snapshot(V2, [1, 1, 1], starts_at=200.0, changes=2)
    _, after = mechanism.plan(later, memory)
    assert policy.asked == 2
    assert after.packed.tolist() == [[0, 1], [0, 2]]
    carried = after.tables[2][:, 0]
    assert carried.tolist() == pytest.approx([0.0, 0.0, 0.0, 100.0, 0.0])
    assert not after.owed_s.any()


def test_job_whose_partner_changes_keeps_its_lease() -> None:
    """b leaves, c joins a where a is, whichever device that is."""
    snap = snapshot(V2, [1, 1, 1], [[-1, 0], [-1, 1]])
    stop, start = plan_unit_moves(snap, [[0, 2]], [0])
    assert stop.tolist() == [101]
    assert list(start) == [Placement(2, 0, (1,))]


def test_of_two_units_that_claim_devices_the_one_with_more_jobs_there_stays() -> None:
    snap = snapshot(V2, [1, 1, 1, 1], [[0, -1], [1, -1], [2, -1]])
    stop, start = plan_unit_moves(snap, [[0, 3], [1, 2]], [0, 0])
    assert stop.tolist() == [100]
    assert {p.job: p.devices for p in start} == {0: (1,), 3: (1,)}


def test_unit_with_two_places_leaves_the_contested_one_to_the_other() -> None:
    """a and b share device 0, c is on 1; for a+c and b alone only a has to move."""
    snap = snapshot(V2, [1, 1, 1], [[0, 2], [1, -1]])
    stop, start = plan_unit_moves(snap, [[0, 2], [1]], [0, 0])
    assert stop.tolist() == [100]
    assert list(start) == [Placement(0, 0, (1,))]


def test_placed_units_hold_what_they_want_and_others_nothing() -> None:
    """500 random rounds: same devices within units, none shared between units, gangs whole."""
    rng = np.random.default_rng(4)
    kept = moved = 0
    for _ in range(500):
        cluster = Cluster.of({"v100": 4, "k80": 4}, per_node=int(rng.choice([1, 2, 4])))
        gang = rng.choice([1, 2], size=8)
        before = _random_units(rng, gang)
        empty = snapshot(cluster, gang.tolist())
        _, start = plan_unit_moves(empty, *before)
        lanes = np.full((2, 8), -1)
        for p in start:
            lane = int((lanes[0, list(p.devices)] >= 0).any())
            lanes[lane, list(p.devices)] = p.job
        snap = snapshot(cluster, gang.tolist(), lanes.tolist())
        held = {p.job: p.devices for p in start}
        units, wanted = _random_units(rng, gang)
        stop, start = plan_unit_moves(snap, units, wanted)
        goes_on = {r: d for r, d in held.items() if 100 + r not in stop.tolist()}
        starts = {p.job: p.devices for p in start}
        assert not goes_on.keys() & starts.keys()
        now = goes_on | starts
        assert sorted(now) == sorted(r for unit in units for r in unit)
        used: list[int] = []
        for unit, accelerator in zip(units, wanted, strict=True):
            (devices,) = {now[row] for row in unit}
            assert len(devices) == gang[unit[0]]
            assert all(cluster.accelerator_of[d] == accelerator for d in devices)
            used += devices
        assert len(set(used)) == len(used)
        kept, moved = kept + len(goes_on), moved + len(starts)
    assert kept > 200
    assert moved > 200


def _random_units(rng: np.random.Generator, gang: np.ndarray) -> tuple[list[list[int]], list[int]]:
    """Return disjoint units of one or two jobs that fit onto two accelerators of four devices."""
    units, wanted, room = [], [], [4, 4]
    left = rng.permutation(len(gang)).tolist()
    while left:
        unit = [left.pop()]
        partner = next((row for row in left if gang[row] == gang[unit[0]]), None)
        if partner is not None and rng.random() < 0.5:
            left.remove(partner)
            unit.append(partner)
        accelerator = int(rng.integers(2))
        if room[accelerator] >= gang[unit[0]] and rng.random() < 0.8:
            room[accelerator] -= gang[unit[0]]
            units.append(sorted(unit))
            wanted.append(accelerator)
    return units, wanted


def test_choice_is_feasible_maximal_and_near_the_best() -> None:
    """On 500 random instances; the best weight is found by trying everything."""
    rng = np.random.default_rng(11)
    ratios = []
    for _ in range(500):
        n = 6
        units: list[tuple[int, ...]] = [(r,) for r in range(n)]
        units += [p for p in itertools.combinations(range(n), 2) if rng.random() < 0.3]
        gang = np.array([1 if rng.random() < 0.8 else 2 for _ in units])
        members = np.array([[*unit, -1][:2] for unit in units])
        listed = [(u, c) for u in range(len(units)) for c in range(2) if rng.random() < 0.35]
        if not listed:
            continue
        row, column = np.array(listed).T
        weight = rng.uniform(3.0, 8.0, size=len(row))
        choice = UnitSelection(
            members, gang[row], CandidateEntries(row, column, weight), [2, 1], n
        )
        choice.assign()
        chosen = [listed.index(pair) for pair in choice.wanted.items()]
        assert _feasible(chosen, listed, units, gang)
        more = [i for i in range(len(listed)) if i not in chosen]
        assert not any(_feasible([*chosen, i], listed, units, gang) for i in more)
        worth = weight * gang[row]  # an entry counts for every device
        best = max(
            sum(worth[list(some)])
            for size in range(4)
            for some in itertools.combinations(range(len(listed)), size)
            if _feasible(some, listed, units, gang)
        )
        ratios.append(sum(worth[chosen]) / best)
    assert min(ratios) > 0.5
    assert np.mean(ratios) > 0.97


def test_a_gang_replaces_smaller_units_to_which_less_is_owed_together() -> None:
    """Two devices: a pair of gangs against a job that alone is more urgent than they are."""
    members = np.array([[0, 1], [2, -1], [3, -1]])
    entries = CandidateEntries(np.arange(3), np.zeros(3, dtype=np.int64), np.array([8.0, 9, 4]))
    choice = UnitSelection(members, np.array([2, 1, 1]), entries, [2], 4)
    choice.assign()
    assert choice.wanted == {0: 0}
    assert choice.free == [0]
    urgent = entries._replace(weight=np.array([8.0, 9.0, 9.0]))
    choice = UnitSelection(members, np.array([2, 1, 1]), urgent, [2], 4)
    choice.assign()
    assert choice.wanted == {1: 0, 2: 0}


def _feasible(
    chosen: Any, listed: list[tuple[int, int]], units: list[Any], gang: np.ndarray
) -> bool:
    jobs = [row for i in chosen for row in units[listed[i][0]]]
    used = [sum(gang[listed[i][0]] for i in chosen if listed[i][1] == c) for c in range(2)]
    return len(set(jobs)) == len(jobs) and used[0] <= 2 and used[1] <= 1


def test_devices_that_no_share_claims_go_to_waiting_jobs_unless_the_policy_forbids() -> None:
    made: list[Any] = [Units, Shares, Gavel]
    for mechanism, fills in itertools.product(made, (True, False)):
        capabilities = replace(_NO_PROGRESS, fills_idle=fills)
        policy = Fixed({(0,): [1.0], (1,): [0.0]}, capabilities)
        plan, memory = (made := mechanism(policy)).plan(
            snapshot(V2, [1, 1]), mechanism(policy).initial()
        )
        assert set(started(plan)) == ({0, 1} if fills else {0})
        if hasattr(made, "refill"):
            snap = snapshot(V2, [1, 1], [[0, -1]], starts_at=10.0, received_s=[[10.0], [0.0]])
            more = made.refill(snap, memory, np.array([1]))
            assert [p.job for p in more] == ([1] if fills else [])


def test_idle_device_in_mid_round_goes_to_one_job_alone() -> None:
    mechanism = Units(Fixed({(0, 1): [0.9], (2, 3): [0.9]}))
    _, memory = mechanism.plan(snapshot(V2, [1] * 4), mechanism.initial())
    snap = snapshot(
        V2, [1, 1, 1], [[0, -1], [1, -1]], starts_at=10.0, job=[0, 1, 3], changes=2,
        received_s=[[10.0], [10.0], [0.0]],
    )  # fmt: skip
    assert list(mechanism.refill(snap, memory, np.array([1]))) == [Placement(3, 0, (1,))]


def test_shares_of_placements_and_of_the_same_unit_are_added_up() -> None:
    snap = snapshot(Cluster.of({"v100": 2, "k80": 2}), [1, 1, 1])
    allocation = Allocation(
        members=np.array([[1, 0], [2, -1], [0, 1], [0, 2]]),
        share=np.array(
            [[0.1, 0.2, 0.3, 0.0], [0.5, 0.0, 0.25, 0.0], [0.1, 0.0, 0.0, 0.0], [0.0] * 4]
        ),
        columns=(Column(0, "consolidated"), Column(1), Column(0, "spread"), Column(1, "spread")),
    )
    packed, share = shares_of_units(allocation, snap)
    assert packed.tolist() == [[0, 1]], "units without shares are left out"
    np.testing.assert_allclose(
        share, np.array([[0, 0], [0, 0], [0.75, 0], [0.5, 0.2]]), atol=1e-15
    )


def test_rows_of_tenants_and_packed_rows_are_refused_where_they_cannot_run() -> None:
    snap = snapshot(V2, [1, 1])
    tenants = Allocation(np.array([[0]]), np.array([[1.0]]), (Column(0),), rows="tenants")
    with pytest.raises(UsageError, match="time of tenants"):
        shares_of_units(tenants, snap)
    for mechanism in (Shares(Fixed({(0, 1): [1.0]})), Gavel(Fixed({(0, 1): [1.0]}))):
        with pytest.raises(UsageError, match="--mechanism units"):
            mechanism.plan(snap, mechanism.initial())


def test_memory_survives_the_log() -> None:
    mechanism = Units(Fixed({(0, 1): [0.5], (2,): [1.0]}))
    plan, memory = mechanism.plan(snapshot(V2, [1, 1, 1]), mechanism.initial())
    event = ev.PlanReady(0.0, 1, plan, memory)
    line = encode_event(event)
    again: Any = decode_event(line, UnitAccount)
    assert encode_event(again) == line
    later = snapshot(V2, [1, 1, 1], starts_at=ROUND_S)
    first, _ = mechanism.plan(later, memory)
    second, _ = mechanism.plan(later, again.memory)
    assert list(first.start) == list(second.start)


SPEEDS = SpeedTable({SpeedKey("m", 1, "v100"): 1.0, SpeedKey("m", 1, "v100", partner="m"): 0.75})


@dataclass
class Nothing:
    """A policy that gives nobody anything, and wants that kept."""

    capabilities: Capabilities = _LEAVES_IDLE
    asked: list[int] = field(default_factory=list)

    def allocate(self, snap: Snapshot) -> Allocation:
        self.asked.append(len(snap.job))
        columns = tuple(Column(j) for j in range(len(snap.capacity)))
        return Allocation(snap.job.reshape(-1, 1), np.zeros((len(snap.job), 1)), columns)


def test_simulation_ends_when_nobody_is_ever_given_anything() -> None:
    jobs = [Job(id="a", workload="m", total_steps=100)]
    for mechanism in (Units(Nothing()), Shares(Nothing()), Gavel(Nothing())):
        record, _ = simulate(Scenario(cluster=V2, speeds=SPEEDS, jobs=jobs, mechanism=mechanism))
        assert np.isnan(record.finished_at).all()
        record, _ = simulate(
            Scenario(
                cluster=V2,
                speeds=SPEEDS,
                jobs=jobs,
                mechanism=replace(mechanism, policy=Nothing(Capabilities())),
            )
        )
        assert record.finished_at.tolist() == [100.0]


def _scheduler(mechanism: Units, jobs: int, cluster: Cluster = V2) -> Scheduler[UnitAccount]:
    made = Scheduler(cluster, SPEEDS, mechanism, plan_lead_s=10.0)
    for i in range(jobs):
        made.handle(ev.JobSubmitted(0.0, Job(id=f"j{i}", workload="m", total_steps=10**6)))
    return made


def _decide(made: Scheduler[UnitAccount], at: float) -> list[object]:
    (asked,) = (c for c in made.handle(ev.PlanDue(at)) if isinstance(c, ComputePlan))
    plan, memory = made.mechanism.plan(asked.snapshot, made.memory)
    return list(made.handle(ev.PlanReady(at, asked.version, plan, memory)))


def test_partner_that_stays_is_not_stopped_by_what_happens_before_the_plan_starts() -> None:
    """The plan of 350 s lets c take b's place beside a from 360 s on; d arrives in between."""
    policy = Fixed({(0, 1): [1.0]})
    made = _scheduler(Units(policy), 3, Cluster.of({"v100": 1}))
    _decide(made, 0.0)
    a, b = (int(made.leases.lease[made.leases.of_job(job)[0]]) for job in (0, 1))
    policy.rows = {(0, 2): [1.0]}
    made.handle(ev.TenantChanged(100.0, Tenant("red")))
    _decide(made, 350.0)
    made.handle(ev.JobSubmitted(355.0, Job(id="d", workload="m", total_steps=10**6)))
    commands = made.handle(ev.RoundEnd(360.0))
    preempted = [n for c in commands if isinstance(c, Preempt) for n in c.lease.tolist()]
    assert preempted == [b]
    assert any(isinstance(c, Renew) and c.lease.tolist() == [a] for c in commands)


def test_packed_jobs_that_wait_for_devices_count_as_busy() -> None:
    policy = Fixed({(0,): [1.0], (1,): [1.0]})
    made = _scheduler(Units(policy), 4)
    _decide(made, 0.0)
    policy.rows = {(0, 2): [1.0], (1, 3): [1.0]}
    made.handle(ev.TenantChanged(5.0, Tenant("red")))
    _decide(made, 350.0)
    made.handle(ev.RoundEnd(360.0))
    assert {p.job for p in made.waiting} == set()
    policy.rows = {(1, 2): [1.0], (0, 3): [1.0]}
    made.handle(ev.TenantChanged(365.0, Tenant("blue")))
    _decide(made, 710.0)
    made.handle(ev.RoundEnd(720.0))
    waiting = sorted(p.job for p in made.waiting)
    assert len(waiting) == 2, "both go to where the other one still is"
    snap = made.snapshot(721.0, 721.0)
    assert set(snap.holds[snap.holds >= 0].tolist()) == {0, 1, 2, 3}
