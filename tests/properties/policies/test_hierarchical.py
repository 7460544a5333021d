"""The policy ``hierarchical`` against the paper's iterations, one program per job."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from fairlead.model.cluster import Cluster
from fairlead.model.errors import UsageError
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.model.tenants.tenant import Tenant
from fairlead.policies.hierarchical import Hierarchical
from fairlead.policies.max_min import MaxMin
from fairlead.solve.linear import Columns, LinearProgram, solve_lp

INF = float("inf")


@dataclass
class SlowHierarchy:
    """Gavel §4.3 literally: distribute weights, raise levels, find the stopped jobs.

    In every iteration the jobs rise from their levels in proportion to explicit weights; then
    each job's level is maximised in turn, and a job that cannot rise loses its weight.
    """

    snap: Snapshot

    def levels(self) -> Any:
        snap = self.snap
        self.gain = np.array([self._normalised(i) for i in range(len(snap.job))])
        level = np.zeros(len(snap.job))
        rising = np.ones(len(level), bool)
        while rising.any():
            weight = self._weights(rising)
            assert (weight[~rising] == 0).all()
            step = self._raise(level, weight)
            level = level + weight * step
            for i in np.flatnonzero(rising):
                alone = (np.arange(len(level)) == i).astype(float)
                if self._raise(level, alone) <= 1e-8 * max(1.0, level[i]):
                    rising[i] = False
        return level

    def _normalised(self, row: int) -> Any:
        snap = self.snap
        speed, devices = snap.speed[row], snap.capacity
        return speed * snap.gang[row] * devices.sum() / (speed * devices).sum()

    def _weights(self, rising: Any) -> Any:
        """Distribute every tenant's weight among its jobs that can rise."""
        snap = self.snap
        home = [snap.tenants[t].id for t in snap.profiles.tenant]
        weight = np.zeros(len(rising))

        def able(tenant: str) -> list[int]:
            """Return the jobs in the tenant and below that can rise, by arrival."""
            own = [i for i in range(len(home)) if home[i] == tenant and rising[i]]
            below = [able(t.id) for t in snap.tenants if t.parent == tenant]
            return sorted(own + [i for jobs in below for i in jobs], key=self._arrival)

        def hand(tenant: Tenant, amount: float) -> None:
            jobs = [i for i in able(tenant.id) if home[i] == tenant.id]
            tenants = [t for t in snap.tenants if t.parent == tenant.id and able(t.id)]
            if tenant.inner == "fifo":
                everyone = [i for i in range(len(home)) if self._inside(home[i], tenant.id)]
                queue: list[tuple[Any, int | Tenant]] = [(self._arrival(i), i) for i in jobs]
                for t in tenants:
                    mine = [i for i in everyone if self._inside(home[i], t.id)]
                    queue.append((min(map(self._arrival, mine)), t))
                first = min(queue, key=lambda entry: entry[0])[1]
                if isinstance(first, Tenant):
                    hand(first, amount)
                else:
                    weight[first] = amount
                return
            total = sum(snap.weight[i] for i in jobs) + sum(t.weight for t in tenants)
            for i in jobs:
                weight[i] = amount * snap.weight[i] / total
            for t in tenants:
                hand(t, amount * t.weight / total)

        for t in snap.tenants:
            if t.parent is None and able(t.id):
                hand(t, t.weight)
        return weight

    def _arrival(self, row: int) -> tuple[float, int]:
        return (float(self.snap.arrival_at[row]), row)

    def _inside(self, tenant: str | None, outer: str) -> bool:
        parent = {t.id: t.parent for t in self.snap.tenants}
        while tenant is not None and tenant != outer:
            tenant = parent[tenant]
        return tenant == outer

    def _raise(self, level: Any, weight: Any) -> float:
        """Return the greatest d for which levels of level + weight · d are feasible."""
        snap, (jobs, width) = self.snap, self.gain.shape
        matrix = np.zeros((2 * jobs + width, 1 + jobs * width))
        lower, upper = np.full(len(matrix), -INF), np.full(len(matrix), INF)
        for i in range(jobs):
            cells = slice(1 + i * width, 1 + (i + 1) * width)
            matrix[i, cells], matrix[jobs + i, cells] = self.gain[i], 1.0
            matrix[i, 0] = -weight[i]
            lower[i], upper[jobs + i] = level[i] * (1 - 1e-10), 1.0
            for j in range(width):
                matrix[2 * jobs + j, 1 + i * width + j] = snap.gang[i]
        upper[2 * jobs :] = snap.capacity
        cost = np.zeros(matrix.shape[1])
        cost[0] = -1.0
        limit = np.full(len(cost), INF)
        program = LinearProgram(
            cost, Columns.dense(matrix), lower, upper, np.zeros(len(cost)), limit
        )
        return -solve_lp(program).objective


def _instance(rng: np.random.Generator, load: float, width: int | None = None) -> Instance:
    """Up to three levels of tenants, some holding both jobs and tenants, gangs and weights."""
    tenants: list[Tenant] = []
    for i in range(int(rng.integers(1, 7))):
        deep = [t.id for t in tenants if t.parent is None or len(t.id) < 4]
        parent = str(rng.choice(deep)) if deep and rng.random() < 0.55 else None
        name = f"t{i}" if parent is None else f"{parent}{'abcdefgh'[i]}"
        inner = "fifo" if rng.random() < 0.4 else "fairness"
        tenants.append(Tenant(name, float(rng.choice([1.0, 1.0, 2.0, 3.5])), parent, inner))
    accelerators = ["v100", "p100", "k80"][: width or int(rng.integers(1, 4))]
    n = int(rng.integers(2, 11))
    ties = rng.random() < 0.3
    jobs = []
    for i in range(n):
        speed = (
            rng.integers(1, 4, len(accelerators)) * 1.0
            if ties
            else rng.uniform(0.2, 4, len(accelerators))
        )
        if len(accelerators) > 1 and rng.random() < 0.15:
            speed[rng.integers(len(accelerators))] = 0.0
        jobs.append(
            InstanceJob(
                id=str(i),
                speeds=dict(zip(accelerators, speed, strict=True)),
                tenant=str(rng.choice([t.id for t in tenants])),
                gang=int(rng.choice([1, 1, 1, 2])),
                weight=float(rng.choice([1.0, 1.0, 2.0, 0.5])),
                elapsed_s=float(rng.integers(0, 5)),
            )
        )
    devices = max(2 * len(accelerators), round(sum(job.gang for job in jobs) / load))
    counts = 2 + rng.multinomial(
        devices - 2 * len(accelerators), np.ones(len(accelerators)) / len(accelerators)
    )
    return Instance(
        Cluster.of(dict(zip(accelerators, counts.tolist(), strict=True))),
        tuple(jobs),
        tuple(tenants),
    )


def _levels(snap: Snapshot, share: Any) -> Any:
    mean = (snap.speed * snap.capacity).sum(axis=1) / snap.capacity.sum()
    return (snap.speed * share).sum(axis=1) * snap.gang / mean


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("load", [0.5, 0.9, 1.5, 4.0])
def test_levels_agree_with_the_papers_iterations(seed: int, load: float) -> None:
    rng = np.random.default_rng([seed, round(10 * load)])
    for _ in range(8):
        snap = snapshot_of(_instance(rng, load))
        share = Hierarchical().allocate(snap).share
        assert (share >= 0).all()
        assert (share.sum(axis=1) <= 1 + 1e-9).all()
        assert ((share * snap.gang[:, None]).sum(axis=0) <= snap.capacity * (1 + 1e-9)).all()
        slow = SlowHierarchy(snap).levels()
        np.testing.assert_allclose(_levels(snap, share), slow, atol=1e-6)


def _some(count: int, seed: int) -> list[Snapshot]:
    rng = np.random.default_rng(seed)
    loads = rng.choice([0.5, 0.9, 1.5, 4.0], count)
    return [snapshot_of(_instance(rng, float(load))) for load in loads]


def test_shares_are_feasible_and_the_prices_prove_the_first_stage() -> None:
    for snap in _some(500, 1):
        allocation = Hierarchical().allocate(snap)
        share = allocation.share
        assert (share >= 0).all()
        assert (share.sum(axis=1) <= 1 + 1e-9).all()
        assert ((share * snap.gang[:, None]).sum(axis=0) <= snap.capacity * (1 + 1e-9)).all()
        assert allocation.prove is not None
        proof = allocation.prove()
        assert -1e-9 <= proof.gap <= 1e-6
        assert allocation.objective == pytest.approx(proof.bound, rel=1e-6)


def test_scaling_all_speeds_of_a_job_changes_nothing() -> None:
    rng = np.random.default_rng(2)
    for snap in _some(500, 2):
        factor = rng.choice([0.01, 0.5, 1.0, 7.0, 300.0], len(snap.job))
        profiles = replace(snap.profiles, speed=snap.profiles.speed * factor[:, None])
        scaled = replace(snap, profiles=profiles)
        here = _levels(snap, Hierarchical().allocate(snap).share)
        there = _levels(scaled, Hierarchical().allocate(scaled).share)
        np.testing.assert_allclose(here, there, atol=1e-7)


def test_agnostic_equals_aware_on_one_accelerator() -> None:
    rng = np.random.default_rng(3)
    for load in rng.choice([0.5, 1.5, 4.0], 500).tolist():
        snap = snapshot_of(_instance(rng, load, width=1))
        aware, blind = Hierarchical().allocate(snap), Hierarchical(agnostic=True).allocate(snap)
        np.testing.assert_allclose(aware.share, blind.share, atol=1e-7)


def test_one_fair_tenant_shares_as_max_min_does() -> None:
    for snap in _some(200, 4):
        tenants = tuple(replace(t, parent=None, inner="fairness") for t in snap.tenants)
        profiles = replace(snap.profiles, tenant=np.zeros_like(snap.profiles.tenant))
        alone = replace(snap, tenants=tenants, profiles=profiles)
        here, there = Hierarchical().allocate(alone).share, MaxMin().allocate(alone).share
        np.testing.assert_allclose(_levels(snap, here), _levels(snap, there), atol=1e-7)


def test_alike_jobs_of_a_fair_tenant_get_equal_shares() -> None:
    rng = np.random.default_rng(5)
    for snap in _some(60, 5):
        again = rng.integers(0, len(snap.job), 2 * len(snap.job))
        rows = np.arange(len(again))
        tenants = tuple(replace(t, inner="fairness") for t in snap.tenants)
        twice = replace(
            snap,
            job=rows,
            profile=again,
            tenants=tenants,
            **{name: getattr(snap, name)[again] for name in _COLUMNS},
        )
        share = Hierarchical().allocate(twice).share
        for profile in np.unique(again):
            assert (share[again == profile] == share[again == profile][0]).all()


_COLUMNS = (
    "arrival_at total_steps steps deadline_at priority received_s on lease isolated_elapsed_s"
).split()


def test_the_option_inner_overrides_tenants() -> None:
    for snap in _some(40, 6):
        for inner in ("fairness", "fifo"):
            changed = replace(snap, tenants=tuple(replace(t, inner=inner) for t in snap.tenants))
            here = Hierarchical(inner=inner).allocate(snap).share
            np.testing.assert_array_equal(here, Hierarchical().allocate(changed).share)
    with pytest.raises(UsageError, match="expected fairness or fifo"):
        Hierarchical(inner="lottery")
