"""Totals of mean speeds, where nearly all options are alike, against separate programs."""

import numpy as np
import pytest
from scipy.optimize import linprog

from fairlead.model.allocation import Allocation
from fairlead.model.cluster import Accelerator, Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.policies.cost_slo import CostSlo
from fairlead.policies.throughput import Throughput

KINDS = ("v100", "p100", "k80", "a100")


def random_snapshot(seed: int, *, deadlines: bool = False) -> Snapshot:
    """A few jobs with speeds of very different orders, some of which cannot run everywhere."""
    rng = np.random.default_rng(seed)
    names = KINDS[: int(rng.integers(1, 5))]
    counts = {name: int(rng.choice([1, 1, 2, 3, 5, 8])) for name in names}
    jobs: list[InstanceJob] = []
    for number in range(int(rng.integers(1, 8))):
        gang = int(rng.choice([1, 1, 1, 2, 3, 4]))
        speeds = {
            name: float(round(10 ** rng.uniform(-2, 2), 4)) for name in names if rng.random() < 0.7
        }
        if any(counts[name] >= gang for name in speeds):
            due = float(10 ** rng.uniform(0, 3)) if deadlines and rng.random() < 0.5 else None
            jobs.append(
                InstanceJob(
                    id=f"j{number}", gang=gang, speeds=speeds, steps_left=100.0, deadline_s=due
                )
            )
    price = {name: float(rng.choice([0.5, 1.0, 2.5])) for name in names}
    details = {name: Accelerator(name, usd_per_hour=price[name]) for name in names}
    return snapshot_of(Instance(Cluster(Cluster.of(counts).nodes, details), tuple(jobs)))


class MeanSpeeds:
    """The program over jobs × accelerators with equal speeds of a job everywhere.

    Beside the shares it has a column for each job: the part of its needed speed that it lacks.
    """

    def __init__(self, snap: Snapshot) -> None:
        jobs, width = self.shape = snap.speed.shape
        mean = (snap.speed * snap.capacity).sum(axis=1) / snap.capacity.sum()
        usable = (snap.speed > 0) & (snap.gang[:, None] <= snap.capacity)
        self.capacity = snap.capacity
        self.speed = np.where(usable, mean[:, None], 0.0)
        self.devices = np.repeat(snap.gang.astype(float), width).reshape(self.shape)
        self.cost = self.devices * snap.cluster.usd_per_hour
        self.needed = snap.steps_left / (snap.deadline_at - snap.at)
        self.bounds = [(0.0, float(cell)) for cell in usable.ravel()] + [(0.0, 1.0)] * jobs
        time = np.hstack([np.repeat(np.eye(jobs), width, axis=1), np.zeros((jobs, jobs))])
        held = np.tile(np.eye(width), jobs) * self.devices.ravel()
        pace = time[:, : jobs * width] * self.speed.ravel()
        self.rows = np.vstack(
            [
                time,
                np.hstack([held, np.zeros((width, jobs))]),
                np.hstack([-pace, -np.diag(self.needed)]),
            ]
        )
        self.upper = np.concatenate([np.ones(jobs), snap.capacity, -self.needed])

    def shares(self, allocation: Allocation) -> np.ndarray:
        """Return the allocation as jobs × accelerators, checked to fit."""
        share = np.zeros(self.shape)
        share[allocation.members[:, 0]] = allocation.share
        assert (share.sum(axis=1) <= 1 + 1e-9).all()
        assert ((share * self.devices).sum(axis=0) <= self.capacity + 1e-9).all()
        return share

    def least(
        self, cost: np.ndarray, *limits: tuple[np.ndarray, float], lack: float | None = None
    ) -> float:
        """Return the least cost · share, with limits on the others and on the total shortfall."""
        rows = [self.rows, *(self._row(of) for of, _ in limits)]
        upper = np.append(self.upper, [most for _, most in limits])
        if lack is not None:
            rows.append(self._lacked)
            upper = np.append(upper, lack)
        solution = linprog(self._row(cost), np.vstack(rows), upper, bounds=self.bounds)
        assert solution.status == 0
        return float(solution.fun)

    def least_lack(self) -> float:
        solution = linprog(self._lacked, self.rows, self.upper, bounds=self.bounds)
        return float(solution.fun)

    def lack(self, share: np.ndarray) -> float:
        has_deadline = self.needed > 0
        part = (self.speed * share).sum(axis=1)[has_deadline] / self.needed[has_deadline]
        return float(np.maximum(1 - part, 0.0).sum())

    @property
    def _lacked(self) -> np.ndarray:
        return np.append(np.zeros(self.speed.size), self.needed > 0)

    def _row(self, cells: np.ndarray) -> np.ndarray:
        return np.append(cells.ravel(), np.zeros(self.shape[0]))


def test_the_total_of_mean_speeds_is_the_greatest_with_the_least_device_time() -> None:
    ran = 0
    for seed in range(400):
        snap = random_snapshot(seed)
        if not len(snap.job):
            continue
        program = MeanSpeeds(snap)
        share = program.shares(Throughput(agnostic=True).allocate(snap))
        greatest = -program.least(-program.speed)
        assert (program.speed * share).sum() == pytest.approx(greatest, rel=1e-7), seed
        spent = program.least(program.devices, (-program.speed, -greatest * (1 - 1e-9)))
        assert (program.devices * share).sum() == pytest.approx(spent, rel=1e-4, abs=1e-4), seed
        ran += 1
    assert ran > 300


def test_deadlines_at_mean_speeds_are_met_for_the_best_ratio_and_with_the_most_of_it() -> None:
    ran = 0
    for seed in range(300):
        snap = random_snapshot(seed, deadlines=True)
        if not np.isfinite(snap.deadline_at).any():
            continue
        program = MeanSpeeds(snap)
        share = program.shares(CostSlo(agnostic=True).allocate(snap))
        lack = program.least_lack()
        assert program.lack(share) == pytest.approx(lack, abs=1e-6), seed
        total, spent = (program.speed * share).sum(), (program.cost * share).sum()
        gain = program.speed - total / spent * program.cost
        assert -program.least(-gain, lack=lack + 1e-12) <= 1e-5 * max(1.0, total), seed
        # No other allocation with this ratio has a greater total.
        as_good = (total / spent * (1 - 1e-10) * program.cost - program.speed, 0.0)
        most = -program.least(-program.speed, as_good, lack=lack + 1e-12)
        assert total >= most * (1 - 1e-5), seed
        ran += 1
    assert ran > 200
