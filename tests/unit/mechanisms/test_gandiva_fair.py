"""Parts of Gandiva_fair: tickets, homes, load, debts and trades; and its response to changes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.papers.gandiva_fair.test_gandiva_fair import Bench, same_speed, speed_table

from fairlead.core import Scheduler, encode_event, replay, state_bytes
from fairlead.mechanisms._tickets.effective_tickets import AcceleratorPool
from fairlead.mechanisms.factory import create_mechanism
from fairlead.mechanisms.gandiva_fair.deficits import ticket_factors
from fairlead.mechanisms.gandiva_fair.devices import FreeDevices
from fairlead.mechanisms.gandiva_fair.gang_contention import JobDemand, SiteLoad
from fairlead.mechanisms.gandiva_fair.mechanism import GandivaFair
from fairlead.mechanisms.gandiva_fair.memory import FairMemory
from fairlead.mechanisms.gandiva_fair.quiet_quanta import LastQuantum
from fairlead.mechanisms.gandiva_fair.tickets import DeviceSites
from fairlead.mechanisms.lottery import Lottery
from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Cluster
from fairlead.model.commands import ComputePlan
from fairlead.model.events import JobSubmitted, NodeLost, NodeReturned, PlanDue
from fairlead.model.job import Job
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.model.tenants.tenant import Tenant
from fairlead.policies.base import WarmStart
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario
from fairlead.testing.cpu_time import cpu_s

# -- effective tickets ----------------------------------------------------------------------------


def _by_bisection(tickets: FloatArray, demand: FloatArray, devices: float) -> FloatArray:
    low, high = 0.0, 1e9
    for _ in range(200):
        level = (low + high) / 2
        if np.minimum(demand, level * tickets).sum() > devices:
            high = level
        else:
            low = level
    return np.minimum(demand, low * tickets)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.01, 3.0), st.integers(0, 6)), min_size=1, max_size=8),
    st.integers(1, 20),
    st.integers(1, 4),
)
def test_who_needs_less_is_satisfied_and_the_rest_divided_by_tickets(
    tenants: list[tuple[float, int]], devices: int, more: int
) -> None:
    tickets = np.array([row[0] for row in tenants])
    pool = AcceleratorPool(tickets, float(devices))
    for i, (_, demand) in enumerate(tenants):
        pool.add(i, float(demand))
    np.testing.assert_allclose(pool.due, _by_bisection(tickets, pool.demand, devices), atol=1e-6)
    all_of_it, grown = pool.demand.copy(), pool.demand.copy()
    all_of_it[0], grown[0] = 1e6, grown[0] + more
    wish = _by_bisection(tickets, all_of_it, devices)[0]
    assert pool.entitlement_if_all_usable(0) == pytest.approx(wish, abs=1e-5)
    part = _by_bisection(tickets, grown, devices)[0] / grown[0]
    assert pool.time(0, more) == pytest.approx(part, abs=1e-5)


def test_weights_of_tenants_and_of_their_jobs_both_count() -> None:
    tenants = [Tenant("A", weight=3.0), Tenant("B")]
    bench = Bench({"v100": 4}, same_speed("v100"), GandivaFair(), tenants)
    bench.submit("A", "any", count=8)
    bench.submit("B", "any", count=8)
    bench.run(32)
    got = bench.by_tenant(64)
    assert [float(got[name][0]) for name in "AB"] == pytest.approx([3.0, 1.0], rel=0.02)


# -- crowds ---------------------------------------------------------------------------------------


def test_load_counts_the_time_of_those_who_cannot_run_side_by_side() -> None:
    gang, one = JobDemand(4, 2.4), JobDemand(1, 0.6)
    crowd = SiteLoad.of(4, [one, gang])
    assert crowd.load == pytest.approx(0.6 + 0.6)  # not 3.0 tickets over 4 devices
    assert crowd.gap == 3
    full = crowd.joined(one).joined(one).joined(one)
    assert full.load == pytest.approx(1.2)
    assert full.gap == 0
    assert full.without(gang).load == pytest.approx(0.6)
    assert SiteLoad.of(4, [JobDemand(2, 1.0), one, one]).load == pytest.approx(2.2 / 4)


# -- debts ----------------------------------------------------------------------------------------


def test_tickets_rise_only_for_more_than_a_cycle_of_strides_explains() -> None:
    due, demand = np.full((3, 1), 2.0), np.full((3, 1), 4.0)
    owed = np.array([[8.0], [38.0], [-1000.0]])
    np.testing.assert_allclose(ticket_factors(owed, due, demand, 30.0).ravel(), [1.0, 1.5, 0.5])


# -- homes and profiling --------------------------------------------------------------------------

KINDS = ("k80", "v100")
SPEEDS = speed_table(
    KINDS, {("big", 1): (1.0, 5.0), ("small", 1): (1.0, 1.2), ("big", 2): (2.0, 9.0)}
)


def _on(bench: Bench, quanta: int = 1) -> list[list[int]]:
    return [row.nonzero()[0].tolist() for row in bench.run(quanta)]


def test_a_job_of_unknown_speed_starts_on_the_newest_accelerator() -> None:
    bench = Bench({"k80": 4, "v100": 4}, SPEEDS, GandivaFair())
    bench.submit("A", "small")
    assert _on(bench) == [[1]]


def test_jobs_go_to_the_next_accelerator_once_the_tenant_has_used_up_the_newest() -> None:
    bench = Bench({"k80": 4, "v100": 4}, SPEEDS, GandivaFair())
    bench.submit("A", "small", count=6)
    assert _on(bench) == [[1]] * 4 + [[0]] * 2


def test_speeds_that_nobody_measured_do_not_decide() -> None:
    """The table says that K80 are of no use; without a measurement the tenant uses them."""
    lying = speed_table(KINDS, {("big", 1): (0.001, 5.0)})
    for profiling, accelerators in ((True, [0]), (False, [1])):
        bench = Bench({"k80": 1, "v100": 1}, lying, GandivaFair(profiling=profiling))
        bench.submit("A", "big", count=2)
        assert _on(bench)[1] == ([] if not profiling else accelerators)


def test_a_pinned_job_stays_on_its_accelerator_however_slow() -> None:
    bench = Bench({"k80": 4, "v100": 4}, SPEEDS, GandivaFair())
    pinned = Job(id="p", workload="big", total_steps=1e12, tenant="A", accelerators=("k80",))
    bench._send(JobSubmitted(0.0, pinned))
    bench.submit("A", "big", count=3)
    assert _on(bench, 10) == [[0], [1], [1], [1]]


def test_jobs_join_others_where_they_leave_whole_nodes_for_gangs() -> None:
    bench = Bench({"v100": 8}, same_speed("v100"), GandivaFair())
    for name in "ABCD":
        bench.submit(name, "any")
    bench.submit("E", "any", gang=4)
    assert bench.run(10).sum(axis=1).tolist() == [1, 1, 1, 1, 4]


# -- changes --------------------------------------------------------------------------------------


def test_jobs_of_a_lost_node_find_another_and_return_when_it_does() -> None:
    bench = Bench({"v100": 8}, same_speed("v100"), GandivaFair())
    bench.submit("A", "any", gang=2, count=2)
    bench.submit("B", "any", gang=2, count=2)
    assert bench.run(3).sum() == 8.0
    bench.node("v100-0", lost=True)
    bench.run(5)
    got = bench.by_tenant(40)
    assert [float(got[name][0]) for name in "AB"] == pytest.approx([2.0, 2.0], rel=0.05)
    bench.node("v100-0", lost=False)
    bench.run(4)
    assert bench.run(10).sum() == 8.0


def test_a_gang_larger_than_what_is_up_waits_and_blocks_nobody() -> None:
    bench = Bench({"v100": 8}, same_speed("v100"), GandivaFair())
    bench.submit("A", "any", gang=8)
    bench.submit("B", "any", count=4)
    bench.run(2)
    bench.node("v100-1", lost=True)
    bench.run(2)
    held = bench.run(20)
    assert held[0].sum() == 0
    assert held[1:].sum() == 4.0
    bench.node("v100-1", lost=False)
    bench.run(2)
    assert bench.run(40)[0].sum() > 1.5


def test_a_trade_ends_with_the_jobs_that_it_was_made_for() -> None:
    bench = Bench({"k80": 12, "v100": 4}, SPEEDS, GandivaFair())
    bench.submit("A", "big", count=12)
    bench.submit("B", "small", count=12)
    bench.run(30)  # until B holds what its twelve jobs can use
    made = bench.trades()
    assert {(t["seller"], t["buyer"], t["price"]) for t in made} == {("A", "B", (5 + 1.2) / 2)}
    assert all(t["second"] is None and not t["undone"] for t in made)
    assert sum(t["fast_devices"] for t in made) == pytest.approx(4 / 2.1)
    bench.end("B")
    bench.submit("C", "small", count=12)
    bench.run(1)
    undone = [t for t in bench.trades() if t["undone"]]
    assert [t["fast_devices"] for t in undone] == [t["fast_devices"] for t in made][::-1]


def test_nobody_trades_for_devices_that_its_jobs_cannot_use() -> None:
    bench = Bench({"k80": 12, "v100": 4}, SPEEDS, GandivaFair())
    bench.submit("A", "big", count=12)
    bench.submit("B", "small", count=8)
    bench.run(30)
    assert bench.trades() == []


def test_a_tenant_with_different_jobs_trades_only_where_all_of_them_gain() -> None:
    bench = Bench({"k80": 24, "v100": 8}, SPEEDS, GandivaFair())
    for tenant in "AB":
        bench.submit(tenant, "big", count=20)
        bench.submit(tenant, "small", count=20)
    bench.run(20)
    assert bench.trades() == []


# -- as a mechanism -------------------------------------------------------------------------------


def test_options_are_read_by_name() -> None:
    made = create_mechanism("gandiva-fair:trading=no,gain=0.2,moves=2,profiling=no", round_s=120.0)
    assert made == GandivaFair(120.0, gain=0.2, moves=2, trading=False, profiling=False)
    assert create_mechanism("lottery:backfill,seed=3") == Lottery(backfill=True, seed=3)


def _scenario(mechanism: GandivaFair | Lottery) -> Scenario:
    jobs = [
        Job(
            id=str(i),
            workload="any",
            gang=(1, 2, 4, 1, 8)[i % 5],
            total_steps=400.0 + 37 * i,
            arrival_at=float(50 * (i // 3)),
            tenant="abc"[i % 3],
        )
        for i in range(24)
    ]
    return Scenario(
        cluster=Cluster.of({"v100": 8, "k80": 8}, per_node=4),
        speeds=same_speed("v100", "k80"),
        jobs=jobs,
        mechanism=mechanism,
        node_events=(NodeLost(200.0, "v100-1"), NodeReturned(700.0, "v100-1")),
        intervals=True,
    )


@pytest.mark.parametrize("mechanism", [GandivaFair(), Lottery(), Lottery(backfill=True)])
def test_a_run_with_losses_ends_and_its_log_replays(mechanism: GandivaFair | Lottery) -> None:
    scenario, log = _scenario(mechanism), list[str]()
    record, after = simulate(
        replace(scenario, on_event=lambda event: log.append(encode_event(event)))
    )
    assert not np.isnan(record.finished_at).any()
    assert after is not None
    fresh = Scheduler[FairMemory](scenario.cluster, scenario.speeds, mechanism)  # type: ignore[arg-type]
    assert state_bytes(replay(fresh, log)) == state_bytes(after)


def _logged(scenario: Scenario) -> list[str]:
    log: list[str] = []
    simulate(replace(scenario, on_event=lambda event: log.append(encode_event(event))))
    return log


class _WithoutLastQuantum(GandivaFair):
    """Plans every quantum from its inputs alone."""

    def plan_warm(
        self, warm: WarmStart, snap: Snapshot, memory: FairMemory
    ) -> tuple[Plan, FairMemory]:
        del warm
        return super().plan_warm(WarmStart(), snap, memory)


@pytest.mark.parametrize("tenants", ["a", "abc"])
def test_quanta_without_changes_repeat_decisions_to_the_last_bit(
    tenants: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    repeated, count = LastQuantum.repeated, list[bool]()

    def counted(last: LastQuantum, *inputs: Any) -> Any:
        result = repeated(last, *inputs)
        count.append(result is not None)
        return result

    monkeypatch.setattr(LastQuantum, "repeated", counted)
    logs: list[list[str]] = []
    for mechanism in (GandivaFair(), _WithoutLastQuantum()):
        scenario = _scenario(mechanism)
        jobs = [
            replace(
                job,
                gang=1,
                total_steps=10 * job.total_steps,
                tenant=tenants[i % len(tenants)],
                weight=1.0 + i % 2 / 3,
            )
            for i, job in enumerate(scenario.jobs)
        ]
        logs.append(_logged(replace(scenario, jobs=jobs)))
    assert logs[0] == logs[1]
    quanta = len(count) // 2
    assert sum(count[:quanta]) > quanta / 4
    assert not any(count[quanta:])


@settings(max_examples=50, deadline=None)
@given(st.sets(st.integers(4, 15), min_size=1), st.lists(st.integers(0, 40)))
def test_a_job_takes_the_first_free_devices_from_a_place_of_its_own_on(
    free: set[int], jobs: list[int]
) -> None:
    accelerator, of_device = np.array([0, 0]), np.array([0] * 4 + [1] * 8 + [0] * 4)
    sites = DeviceSites(accelerator, np.array([8, 8]), of_device)
    devices = FreeDevices(sites, np.array(sorted(free)))
    left, expected = {site: list(here) for site, here in devices.at.items()}, list[int]()
    for row, job in enumerate(jobs):
        gang = 1 + row % 3
        for site, here in left.items():
            if len(here) >= gang:
                here.sort(key=[(device - job * gang) % 8 for device in range(16)].__getitem__)
                expected += sorted(here[:gang])
                del here[:gang]
                if gang == 1:
                    devices.take_ones([job], [site])
                else:
                    devices.take(job, gang, {site: gang})
                break
    assert devices.placements().device.tolist() == expected


def test_devices_that_fall_idle_within_a_quantum_are_used_at_once() -> None:
    speeds = SpeedTable({SpeedKey("any", 1, "v100"): 1.0})
    jobs = [Job(id=str(i), workload="any", total_steps=100.0) for i in range(3)]
    cluster = Cluster.of({"v100": 1})
    record, _ = simulate(
        Scenario(cluster=cluster, speeds=speeds, jobs=jobs, mechanism=GandivaFair())
    )
    assert record.finished_at.max() == pytest.approx(300.0)


@pytest.mark.parametrize("mechanism", [GandivaFair(), Lottery(), Lottery(backfill=True)])
@pytest.mark.parametrize("tenants", [1, 10, 1000])
def test_a_decision_about_1000_jobs_on_500_devices_takes_less_than_half_a_second(
    mechanism: Any, tenants: int
) -> None:
    accelerators = ("v100", "p100", "k80")
    rng = np.random.default_rng(0)
    rows = {
        (f"w{i}", gang): tuple(np.sort(rng.uniform(1, 6, 3))[::-1] * gang**0.9)
        for i in range(26)
        for gang in (1, 2, 4, 8)
    }
    cluster = Cluster.of({"v100": 168, "p100": 168, "k80": 164}, per_node=4)
    scheduler: Scheduler[object] = Scheduler(cluster, speed_table(accelerators, rows), mechanism)
    for i in range(1000):
        gang = int(rng.choice([1, 1, 1, 1, 1, 2, 4, 8]))
        workload, tenant = f"w{rng.integers(26)}", f"t{i % tenants}"
        job = Job(id=str(i), workload=workload, gang=gang, total_steps=1e9, tenant=tenant)
        scheduler.handle(JobSubmitted(0.0, job))
    (asked,) = (c for c in scheduler.handle(PlanDue(0.0)) if isinstance(c, ComputePlan))
    (plan, _), took_s = cpu_s(lambda: mechanism.plan(asked.snapshot, asked.memory))
    assert len(plan.start.device) > 400
    assert took_s < 0.5  # 0.18 s for Gandiva_fair with 1,000 tenants, less than 0.1 s otherwise
