"""Promises of OEF's placement, on random tenants: none falls behind by more than a gang."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from tests.support.tenant_instances import random_table

from fairlead.mechanisms.rounding.mechanism import Rounding
from fairlead.mechanisms.rounding.memory import Deviations
from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.policies.base import Policy, WarmStart
from fairlead.policies.oef import Oef
from fairlead.policies.oef_cooperative import OefCooperative
from fairlead.policies.tenant_max_min import TenantMaxMin
from fairlead.policies.trading import Trading
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario

POLICIES: list[Policy] = [Oef(), OefCooperative(), TenantMaxMin(), Trading()]
INSTANCES = 16
ROUNDS = 48


class EnoughError(Exception):
    pass


@dataclass
class DebtRecorder:
    """Counts independently the devices that every virtual tenant was due and held."""

    owed: dict[tuple[int, int], float] = field(default_factory=dict)
    """(virtual tenant, accelerator) → ideal less real devices, summed over rounds"""
    behind: float = -np.inf
    """greatest debt of a tenant, in smallest waiting gangs"""
    ahead: float = 0.0
    """greatest lead of a tenant, in devices"""
    tracked: float = -np.inf
    """the same by the mechanism's own account"""
    had: dict[tuple[int, int], float] = field(default_factory=dict)
    """(tenant, accelerator) → devices × rounds held"""
    runs: list[dict[int, tuple[int, ...]]] = field(default_factory=list)
    """rounds → job → devices"""
    rounds: int = 0
    memory: Deviations = field(default_factory=Deviations.empty)

    @property
    def throughputs(self) -> tuple[FloatArray, FloatArray]:
        """Tenants → mean normalised throughput: estimated from shares, and as placed (§6.1.4).

        One device of the slowest accelerator counts 1, in the time in which a tenant had jobs.
        """
        memory = self.memory
        return memory.estimated_s / memory.present_s, memory.actual_s / memory.present_s

    def note(self, snap: Snapshot, plan: Plan, memory: Deviations) -> None:
        runs = {int(job): devices for job, _, devices, _ in plan.start}
        stopped = set(plan.stop.tolist())
        for row in np.unique(snap.holds[snap.holds >= 0]).tolist():
            if int(snap.lease[row]) not in stopped and int(snap.job[row]) not in runs:
                devices = (snap.holds == row).any(axis=0).nonzero()[0]
                runs[int(snap.job[row])] = tuple(devices.tolist())
        real = np.zeros_like(memory.ideal)
        waiting = np.full(len(memory.name), np.inf)
        for row, job in enumerate(snap.job.tolist()):
            i = int(memory.member[row])
            if job in runs:
                accelerator = snap.cluster.accelerator_of[list(runs[job])]
                np.add.at(real[i], accelerator, 1.0)
                for j in accelerator.tolist():
                    at = (int(snap.tenant[row]), j)
                    self.had[at] = self.had.get(at, 0.0) + 1.0
            elif (snap.gang[row] <= snap.capacity).any():
                waiting[i] = min(waiting[i], snap.gang[row])
        assert (real.sum(axis=0) <= snap.capacity).all()
        left = memory.dev + memory.ideal - memory.real
        for i, name in enumerate(memory.name.tolist()):
            for j in (memory.ideal[i] > 0).nonzero()[0].tolist():
                owed = self.owed.get((name, j), 0.0) + float(memory.ideal[i, j] - real[i, j])
                self.owed[name, j] = owed
                self.behind = max(self.behind, owed / waiting[i])
                self.ahead = max(self.ahead, -owed)
                self.tracked = max(self.tracked, float(left[i, j]) / waiting[i])
        self.rounds += 1
        self.runs.append(runs)
        self.memory = memory


def watched(scenario: Scenario, rounds: int) -> DebtRecorder:
    """Run a scenario for so many rounds, or to its end."""
    watch = DebtRecorder()

    @dataclass(frozen=True)
    class RecordedRounding(Rounding):
        def plan_warm(
            self, warm: WarmStart, snap: Snapshot, memory: Deviations
        ) -> tuple[Plan, Deviations]:
            plan, after = super().plan_warm(warm, snap, memory)
            watch.note(snap, plan, after)
            if watch.rounds >= rounds:
                raise EnoughError
            return plan, after

    usual: Any = scenario.mechanism
    with suppress(EnoughError):
        simulate(replace(scenario, mechanism=RecordedRounding(usual.policy, spans=usual.spans)))
    return watch


def scenario(
    seed: int,
    policy: Policy,
    gangs: Sequence[int],
    *,
    jobs_each: int | None = None,
    steps: tuple[int, int] | None = None,
    spans: str = "never",
    mixed_tenants: bool = False,
) -> Scenario:
    """Tenants of one workload and one gang each, on nodes of four devices.

    Without ``jobs_each`` nobody ever has too few jobs; without ``steps`` they never end.
    """
    rng = np.random.default_rng(seed)
    table = random_table(rng, widest=3)
    step = max(gangs)
    counts = [step * int(rng.integers(1, 1 + 8 // step)) for _ in range(table.shape[1])]
    cluster = Cluster.of({f"gpu{j}": n for j, n in enumerate(counts)}, per_node=4)
    speeds = SpeedTable(
        {
            SpeedKey(f"w{i}", 1, f"gpu{j}"): float(table[i, j])
            for i in range(len(table))
            for j in range(table.shape[1])
        }
    )
    jobs = []
    for i in range(len(table)):
        own = int(rng.choice(gangs))
        for number in range(jobs_each or sum(counts) // own + 1):
            low, high = steps or (10**9, 10**9 + 1)
            jobs.append(
                Job(
                    id=f"{i}-{number}",
                    workload=f"w{i}",
                    tenant=f"u{i}",
                    gang=int(rng.choice(gangs)) if mixed_tenants else own,
                    total_steps=int(rng.integers(low, high)),
                    arrival_at=float(rng.integers(0, 10_000)) if steps else 0.0,
                )
            )
    return Scenario(
        cluster=cluster,
        speeds=speeds,
        jobs=sorted(jobs, key=lambda job: job.arrival_at),
        mechanism=Rounding(policy, spans=spans),
    )


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_nobody_is_a_device_behind_or_ahead_with_jobs_of_one_device(policy: Policy) -> None:
    for seed in range(INSTANCES):
        watch = watched(scenario(seed, policy, [1]), ROUNDS)
        assert watch.rounds == ROUNDS
        assert watch.behind <= 1 + 1e-6
        assert watch.ahead <= 1 + 1e-6
        assert watch.memory.forgiven.sum() < 1e-9


@pytest.mark.parametrize("gangs", [[1, 2], [1, 2, 4], [1, 4], [4]], ids=str)
def test_nobody_is_a_gang_behind_where_gangs_nest_and_go_into_the_devices(
    gangs: list[int],
) -> None:
    for seed in range(INSTANCES):
        watch = watched(scenario(seed, POLICIES[seed % 4], gangs), ROUNDS)
        assert watch.rounds == ROUNDS
        assert watch.behind <= 1 + 1e-6
        assert watch.memory.forgiven.sum() < 1e-9


@pytest.mark.parametrize(("gangs", "most"), [([1], 0.002), ([1, 2, 4], 0.025)], ids=str)
def test_debts_are_cut_to_what_can_be_paid_when_allocations_change(
    gangs: list[int], most: float
) -> None:
    """Jobs come and end all the time; little is ever forgiven, and the rest is paid in time."""
    forgiven = devices = there = 0.0
    for seed in range(INSTANCES):
        busy = scenario(seed, POLICIES[seed % 4], gangs, jobs_each=12, steps=(3000, 30_000))
        watch = watched(busy, ROUNDS)
        assert watch.tracked <= 1 + 1e-6
        forgiven += float(watch.memory.forgiven.sum())
        devices += sum(watch.had.values())
        there += watch.rounds * len(busy.cluster.node_of)
    assert devices > 0.5 * there
    assert forgiven <= most * devices, forgiven / devices


def test_all_devices_are_used_while_jobs_of_one_device_wait() -> None:
    for seed in range(INSTANCES):
        busy = scenario(seed, POLICIES[seed % 4], [1])
        watch = watched(busy, 20)
        assert sum(watch.had.values()) == pytest.approx(20 * len(busy.cluster.node_of))


@pytest.mark.parametrize("spans", ["never", "idle", "own"])
def test_any_mix_of_gangs_and_few_jobs_is_carried_out(spans: str) -> None:
    """Gangs that do not nest and tenants with few jobs: deviations stay within bounds."""
    for seed in range(INSTANCES):
        odd = scenario(
            *(seed, POLICIES[seed % 4], [1, 2, 3]),
            jobs_each=4,
            steps=(300, 3000),
            spans=spans,
            mixed_tenants=True,
        )
        record, _ = simulate(odd)
        assert not np.isnan(record.finished_at).any()
        watch = watched(odd, ROUNDS)
        assert watch.tracked <= 1 + 1e-6
