"""The cost policies against a parametric search, and shortest-first against its definition."""

from dataclasses import replace

import numpy as np
import pytest
from tests.properties.policies.pair_program import PairProgram, check_feasible, random_snapshot

from fairlead.model.cluster import Accelerator, Cluster
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import effective_speed
from fairlead.policies.cost import Cost
from fairlead.policies.cost_slo import CostSlo
from fairlead.policies.makespan import Makespan
from fairlead.policies.max_min import MaxMin
from fairlead.policies.sjf import ShortestFirst
from fairlead.policies.throughput import Throughput
from fairlead.solve.linear import INFINITY, Columns, LinearProgram, solve_lp


def priced_snapshot(seed: int, *, deadlines: bool = False, accelerators: int = 2) -> Snapshot:
    rng = np.random.default_rng(1000 + seed)
    snap = random_snapshot(seed, accelerators=accelerators)
    details = {
        name: Accelerator(name, usd_per_hour=float(rng.uniform(0.1, 3.0)))
        for name in snap.cluster.accelerators
    }
    cluster = Cluster(snap.cluster.nodes, details)
    deadline_at = np.full(len(snap.job), np.inf)
    if deadlines:
        alone_s = snap.steps_left / snap.speed.max(axis=1)
        has_deadline = rng.random(len(alone_s)) < 0.7
        slack = rng.choice([0.7, 1.5, 3.0, 8.0], size=len(alone_s))
        deadline_at = np.where(has_deadline, alone_s * slack, np.inf)
        if rng.random() < 0.15:
            deadline_at[0] = -5.0
    return replace(snap, cluster=cluster, deadline_at=deadline_at)


class Oracle:
    """The program over jobs (or pairs of jobs) with floors and shortfalls, from the definition."""

    def __init__(self, snap: Snapshot, *, packed: bool) -> None:
        program = PairProgram.of(snap)
        keep = [packed or len(m) == 1 for m in program.members]
        columns = [i for i, kept in enumerate(keep) if kept]
        self.rows, self.upper = program.rows()
        self.rows = self.rows[:, columns]
        self.gain = program.gain(np.ones(len(snap.job)))[:, columns]
        price = snap.cluster.usd_per_hour
        self.cost = np.array(
            [snap.gang[program.members[c][0]] * price[program.kind[c]] for c in columns]
        )
        left_s = snap.deadline_at - snap.at
        best = self.gain.max(axis=1)
        self.need = np.where(left_s > 0, snap.steps_left / np.maximum(left_s, 1e-300), best)

    def solve(self, value: np.ndarray, late: np.ndarray, most_late: float) -> float:
        """Return the greatest value · y - late · s, with s the relative shortfalls."""
        floors = self.need > 0
        n, options = len(self.need), self.rows.shape[1]
        short = np.diag(self.need)
        matrix = np.vstack(
            [
                np.column_stack([self.rows, np.zeros((len(self.upper), n))]),
                np.column_stack([self.gain, short]),
                np.append(np.zeros(options), floors.astype(float)),
            ]
        )
        solution = solve_lp(
            LinearProgram(
                np.append(-value, late),
                Columns.dense(matrix),
                np.concatenate([np.full(len(self.upper), -INFINITY), self.need, [-INFINITY]]),
                np.concatenate([self.upper, np.full(n, INFINITY), [most_late]]),
                np.zeros(options + n),
                np.append(np.full(options, INFINITY), floors.astype(float)),
            )
        )
        return -solution.objective

    def least_shortfall(self) -> float:
        options = self.rows.shape[1]
        return -self.solve(np.zeros(options), (self.need > 0).astype(float), INFINITY)

    def ratio(self) -> float:
        """Return the greatest r for which value - r · cost reaches 0, by bisection."""
        value = self.gain.sum(axis=0)
        most_late = self.least_shortfall() * (1 + 1e-10) + 1e-10
        none = np.zeros(len(self.need))
        low, high = 0.0, float((value / self.cost).max()) * (1 + 1e-9)
        if self.solve(value - high * (1 - 2e-9) * self.cost, none, most_late) > -1e-9 * high:
            return high
        for _ in range(40):
            middle = (low + high) / 2
            if self.solve(value - middle * self.cost, none, most_late) >= 0:
                low = middle
            else:
                high = middle
        return low


def spent(snap: Snapshot, share: np.ndarray, gang: np.ndarray) -> float:
    return float((share * gang[:, None] * snap.cluster.usd_per_hour).sum())


@pytest.mark.parametrize("packed", [False, True])
def test_cost_reaches_the_ratio_of_a_parametric_search(packed: bool) -> None:
    for seed in range(100):
        snap = priced_snapshot(seed, accelerators=3)
        allocation = Cost(packed=packed).allocate(snap)
        assert allocation.objective == pytest.approx(Oracle(snap, packed=packed).ratio(), rel=1e-7)
        check_feasible(snap, allocation)
        row = {number: i for i, number in enumerate(snap.job.tolist())}
        gang = snap.gang[[row[m] for m in allocation.members[:, 0].tolist()]]
        total = float(effective_speed(snap, allocation).sum())
        assert total / spent(snap, allocation.share, gang) == pytest.approx(
            allocation.objective, rel=1e-9
        )
        assert allocation.prove is not None
        assert abs(allocation.prove().gap) <= 1e-9


@pytest.mark.parametrize("packed", [False, True])
def test_cost_slo_reaches_the_ratio_of_a_parametric_search(packed: bool) -> None:
    late, in_time = 0, 0
    for seed in range(60):
        snap = priced_snapshot(seed, deadlines=True)
        allocation = CostSlo(packed=packed).allocate(snap)
        oracle = Oracle(snap, packed=packed)
        assert allocation.objective == pytest.approx(oracle.ratio(), rel=1e-6), seed
        speed = effective_speed(snap, allocation)
        short = (
            np.maximum(oracle.need - speed, 0.0)[oracle.need > 0] / oracle.need[oracle.need > 0]
        )
        assert short.sum() == pytest.approx(oracle.least_shortfall(), abs=1e-7), seed
        check_feasible(snap, allocation)
        due = snap.deadline_at - snap.at
        truly = {
            snap.ids[m]
            for m in range(len(due))
            if due[m] <= 0 or speed[m] < snap.steps_left[m] / due[m] * (1 - 1e-6)
        }
        assert {entry.job for entry in allocation.late} == truly
        late += bool(truly)
        in_time += not truly and bool(np.isfinite(due).any())
    assert late > 10
    assert in_time > 10


def test_cost_slo_without_deadlines_is_cost() -> None:
    for seed in range(40):
        snap = priced_snapshot(seed)
        one, two = Cost(packed=True).allocate(snap), CostSlo(packed=True).allocate(snap)
        np.testing.assert_array_equal(one.share, two.share)
        assert not two.late


def test_agnostic_equals_aware_on_one_accelerator() -> None:
    for seed in range(500):
        snap = priced_snapshot(seed, accelerators=1, deadlines=True)
        # Deadlines take several programs per instance, so a fifth of the instances suffices.
        slow = (CostSlo,) if seed % 5 == 0 else ()
        for accelerator in (MaxMin, Makespan, Throughput, Cost, ShortestFirst, *slow):
            aware, blind = accelerator().allocate(snap), accelerator(agnostic=True).allocate(snap)
            np.testing.assert_allclose(blind.share, aware.share, atol=1e-9)


def test_the_total_is_feasible_and_not_below_that_of_any_other_policy() -> None:
    for seed in range(500):
        snap = priced_snapshot(seed, accelerators=3)
        best = Throughput().allocate(snap)
        check_feasible(snap, best)
        assert best.objective is not None
        for policy in (Cost(), Cost(sum=True), ShortestFirst()):
            other = policy.allocate(snap)
            check_feasible(snap, other)
            assert effective_speed(snap, other).sum() <= best.objective * (1 + 1e-9)


def test_the_next_job_is_the_one_that_would_finish_first_on_free_devices() -> None:
    for seed in range(100):
        snap = random_snapshot(seed, accelerators=3, most=8)
        share = ShortestFirst().allocate(snap).share
        free, waiting = snap.capacity.copy(), set(range(len(snap.job)))
        expected = np.zeros_like(share)
        while True:
            choices = [
                (snap.steps_left[m] / snap.speed[m, j], m, j)
                for m in waiting
                for j in range(len(free))
                if snap.speed[m, j] > 0 and snap.gang[m] <= free[j]
            ]
            if not choices:
                break
            _, m, j = min(choices)
            waiting.remove(m)
            free[j] -= snap.gang[m]
            expected[m, j] = 1.0
        np.testing.assert_array_equal(share, expected)
