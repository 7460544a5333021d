"""Hadar and HadarE decision by decision, and copies of jobs in the scheduler and the simulator."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from tests.properties.sim.test_simulation import SPEEDS, scenarios
from tests.unit.mechanisms.hadar_inputs import few, scenario, snapshot

from fairlead.core import Scheduler, encode_event, replay, state_bytes
from fairlead.core.saved_state import load_state, save_state
from fairlead.mechanisms.factory import create_mechanism
from fairlead.mechanisms.hadar.auction import Auction
from fairlead.mechanisms.hadar.devices import choose_devices, with_nodes_exchanged
from fairlead.mechanisms.hadar.find_alloc import (
    Bid,
    DeviceCells,
    DeviceDeal,
    DeviceMarket,
)
from fairlead.mechanisms.hadar.hadare import HadarE
from fairlead.mechanisms.hadar.mechanism import Hadar
from fairlead.mechanisms.hadar.prices import Prices, horizon_s
from fairlead.mechanisms.hadar.utilities import UTILITIES, UtilityTerms
from fairlead.mechanisms.srtf import Srtf
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster, Node
from fairlead.model.errors import InputError, UsageError
from fairlead.model.job import Job
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario

# -- utilities and prices ---------------------------------------------------------------------


@pytest.mark.parametrize("name", UTILITIES)
def test_no_utility_grows_with_the_completion_time(name: str) -> None:
    column = np.array([[100.0], [7.0]])
    terms = UtilityTerms(column, column, column / 2, column * 0 + 3.0, column * 0 + 2.0)
    later = UTILITIES[name](terms, np.array([[4.0, 10.0, 1e6]]))
    assert (np.diff(later, axis=1) < 0).all()
    assert (later > 0).all()


def test_prices_are_set_by_the_jobs_that_can_use_an_accelerator() -> None:
    snap = snapshot(Cluster.of({"v100": 2, "k80": 2}), (1, (8.0, 0.0), 800), (2, (2.0, 1.0), 90))
    worth = Auction(Hadar(round_s=10.0), snap).worth
    prices = worth.bidders.prices(1.0)
    # Effective throughput: 8 steps/s on one V100; 1 step/s on two K80, so 1/2 a device.
    assert prices.most.tolist() == [8.0, 0.5]
    ends_s = horizon_s(np.array([1, 2]), np.array([100.0, 90.0]), 4)
    assert ends_s == 100.0 + (100.0 + 180.0) / 4
    small = 90.0 / ends_s / (9 * 2) / 4  # job 1: 9 rounds of 10 s on its slowest, two devices
    assert prices.least[1] == pytest.approx(small)
    assert prices.least[0] == pytest.approx(min(small, 800.0 / ends_s / 10 / 4))


@pytest.mark.parametrize("option", ["eta", "round-s", "communication", "states", "effort"])
def test_options_out_of_range_are_refused(option: str) -> None:
    with pytest.raises(UsageError, match=option):
        create_mechanism(f"hadar:{option}=-1")
    with pytest.raises(UsageError, match="speed"):
        Hadar(utility="speed")
    with pytest.raises(UsageError, match="copies"):
        HadarE(copies=-1)


# -- FIND_ALLOC -----------------------------------------------------------------------------------


def market(cluster: Cluster, *, communication: float = 0.1, mixed: bool = True) -> DeviceMarket:
    cells = DeviceCells.of(cluster, range(len(cluster.node_of)))
    n_accelerators = len(cluster.accelerators)
    prices = Prices(np.full(n_accelerators, 0.01), np.full(n_accelerators, 1.0))
    return DeviceMarket(cells, [len(d) for d in cells.devices], prices, communication, mixed)


def test_a_gang_stays_on_one_node_unless_spreading_pays() -> None:
    two = market(Cluster.of({"v100": 4}, per_node=2))
    opening = two.opening([2, 2])
    equal = Bid(0, 2, [2.0], [2.0])
    deal = two.find(opening, equal)
    assert deal is not None
    assert len(deal.take) == 1
    # With half of each node sold, one device of each is all there is, communication paid.
    half = two.opening([1, 1])
    deal = two.find(half, equal)
    assert deal is not None
    assert [count for _, count in deal.take] == [1, 1]
    assert deal.cost == pytest.approx(sum(half.price) + 0.1 * 2.0 * 0.5)


def test_a_mixed_node_takes_a_mixed_gang_at_the_pace_of_its_slowest_device() -> None:
    both = Cluster((Node("a", ("v100", "v100", "k80")),))
    deal = market(both).find(market(both).opening([2, 1]), Bid(0, 3, [9.0, 6.0], [9.0, 6.0]))
    assert deal is not None
    assert deal.utility == 6.0
    strict = market(both, mixed=False)
    assert strict.find(strict.opening([2, 1]), Bid(0, 3, [9.0, 6.0], [9.0, 6.0])) is None


def test_a_job_that_cannot_pay_gets_nothing() -> None:
    one = market(Cluster.of({"v100": 4}))
    assert one.find(one.opening([4]), Bid(0, 1, [0.02], [0.02])) is not None
    assert one.find(one.opening([1]), Bid(0, 1, [0.02], [0.02])) is None
    assert one.find(one.opening([0]), Bid(0, 1, [9.0], [9.0])) is None


# -- a decision -----------------------------------------------------------------------------------


def test_every_deal_pays_and_no_usable_device_stays_idle_unless_prices_are_strict() -> None:
    rng = random.Random(3)
    cluster = Cluster.of({"v100": 8, "k80": 8}, per_node=4)
    idle_when_strict = 0
    for _ in range(30):
        speeds = [10 ** rng.uniform(-3, 3) for _ in range(20)]
        snap = snapshot(cluster, *((1, (speed, speed / 2), 100 * speed) for speed in speeds))
        for strict in (False, True):
            auction = Auction(Hadar(strict=strict), snap)
            deals = auction.sell([4, 4, 4, 4], range(20))
            assert all(deal.payoff > 0 for deal in deals.values())
            idle = 16 - len(deals)
            assert strict or idle == 0
            idle_when_strict += idle
    assert idle_when_strict > 0


def test_devices_are_never_given_twice_and_gangs_are_whole() -> None:
    rng = random.Random(4)
    cluster = Cluster.of({"v100": 6, "k80": 5}, per_node=3)
    for _ in range(20):
        jobs = [(rng.choice([1, 2, 3, 4]), (4.0, 3.0), 1000.0) for _ in range(12)]
        plan, _ = Hadar().plan(snapshot(cluster, *jobs), Hadar().initial())
        taken = [device for unit in plan.start for device in unit.devices]
        assert len(taken) == len(set(taken)) >= 9
        assert all(len(unit.devices) == jobs[unit.job][0] for unit in plan.start)


def test_a_gang_larger_than_what_is_up_holds_up_nobody() -> None:
    cluster = Cluster.of({"v100": 4}, per_node=1)
    jobs = [
        Job(id="large", workload="big", gang=4, total_steps=800),
        Job(id="small", workload="big", total_steps=800),
    ]
    lost = [ev.NodeLost(0.0, "v100-0"), ev.NodeReturned(1000.0, "v100-0")]
    record, _ = simulate(scenario(cluster, jobs, Hadar(), node_events=lost))
    assert record.started_at[1] == 0.0
    assert 1000.0 <= record.started_at[0] <= 1080.0


def test_equal_nodes_are_renamed_so_that_jobs_stay() -> None:
    cells = DeviceCells.of(Cluster.of({"v100": 4}, per_node=2), range(4))
    swapped = {0: DeviceDeal(((1, 2),), 1.0, 0.0), 1: DeviceDeal(((0, 1),), 1.0, 0.0)}
    held = {0: (0, 1), 1: (3,)}
    deals = with_nodes_exchanged(cells, swapped, held)
    assert choose_devices(cells, deals, held, {0, 1, 2, 3}) == held


def test_running_jobs_are_left_alone_while_nothing_gains() -> None:
    cluster = Cluster.of({"v100": 4, "k80": 4}, per_node=2)
    jobs = [Job(id=str(i), workload="big", total_steps=90_000) for i in range(8)]
    record, _ = simulate(scenario(cluster, jobs, Hadar(), restore_cost_s=10.0))
    # When the four on V100 end after 11,250 s the others move there, once each.
    assert record.preemptions.tolist().count(0) == 4
    assert record.preemptions.max() == 1


def test_a_job_moves_to_a_faster_device_unless_the_restart_costs_more() -> None:
    cluster = Cluster.of({"v100": 1, "k80": 1})
    jobs = [
        Job(id="a", workload="big", total_steps=8_000),
        Job(id="b", workload="big", total_steps=8_000),
    ]

    def moves(restart_s: float) -> int:
        record, _ = simulate(scenario(cluster, jobs, Hadar(restart_s=restart_s)))
        return int(record.migrations.sum())

    assert moves(10.0) == 1
    assert moves(1e6) == 0


def test_waiting_jobs_start_within_a_round_only_at_once() -> None:
    cluster = Cluster.of({"v100": 1})
    jobs = [
        Job(id="a", workload="big", total_steps=800),
        Job(id="b", workload="big", total_steps=800),
        Job(id="c", workload="big", total_steps=800, arrival_at=50.0),
    ]
    late, _ = simulate(scenario(cluster, jobs[:2], Hadar()))
    soon, _ = simulate(scenario(cluster, jobs[:2], Hadar(at_once=True)))
    assert late.finished_at.max() == soon.finished_at.max() == 200.0  # nothing else runs
    two = Cluster.of({"v100": 2})
    more = [Job(id="d", workload="big", total_steps=80_000), *jobs]
    late, _ = simulate(scenario(two, more, Hadar()))
    soon, _ = simulate(scenario(two, more, Hadar(at_once=True)))
    assert sorted(late.started_at.tolist()) == [0.0, 0.0, 360.0, 720.0]
    assert sorted(soon.started_at.tolist()) == [0.0, 0.0, 100.0, 200.0]


def test_a_job_restricted_to_some_accelerators_gets_no_others() -> None:
    cluster = Cluster.of({"v100": 4, "p100": 4, "k80": 1})
    job = Job(id="a", workload="small", gang=4, total_steps=1000, accelerators=("v100",))
    lost = [ev.NodeLost(0.0, "p100-0")]
    record, _ = simulate(scenario(cluster, [job], Hadar(), node_events=lost))
    assert (record.device_s[0] > 0).tolist() == [True, False, False]
    # Without that a gang of four may have the K80, of which there are fewer than four.
    free = replace(job, accelerators=None, arrival_at=1.0)
    nodes = Cluster.of({"v100": 4, "k80": 1}, per_node=1)
    record, _ = simulate(
        scenario(nodes, [free], Hadar(), node_events=[ev.NodeLost(0.0, "v100-0")])
    )
    on_v100, on_k80 = record.device_s[0].tolist()
    assert on_v100 == pytest.approx(3 * on_k80)
    assert on_k80 > 0


def test_a_gang_that_only_several_accelerators_can_hold_is_taken_in_where_gangs_mix() -> None:
    job = Job(id="a", workload="small", gang=4, total_steps=1000)

    def submit(mechanism: Any, job: Job, **counts: int) -> None:
        cluster = Cluster.of(counts, per_node=1)
        scheduler: Scheduler[Any] = Scheduler(cluster, SPEEDS, mechanism)
        scheduler.handle(ev.JobSubmitted(0.0, job))
        assert scheduler.jobs.ids == ["a"]

    for mixing in (Hadar(), HadarE()):
        submit(mixing, job, v100=3, p100=2, k80=3)
        for refused, counts in (
            (replace(job, accelerators=("v100",)), {"v100": 3, "k80": 3}),
            (job, {"v100": 1, "p100": 1, "k80": 1}),
        ):
            with pytest.raises(InputError, match="the cluster has"):
                submit(mixing, refused, **counts)
    for plain in (Hadar(mixed=False), Srtf()):
        with pytest.raises(InputError, match="the cluster has"):
            submit(plain, job, v100=3, p100=2, k80=3)


# -- simulations ------------------------------------------------------------------------------


@few
@given(scenarios())
@pytest.mark.parametrize("mechanism", [Hadar(), Hadar(at_once=True), HadarE()])
def test_every_job_finishes_no_device_is_held_twice_and_replay_gives_the_same_bytes(
    mechanism: Any, given: Scenario
) -> None:
    log: list[str] = []
    made = replace(mechanism, round_s=120.0)
    run = replace(given, mechanism=made, on_event=lambda e: log.append(encode_event(e)))
    record, after = simulate(run)
    assert not np.isnan(record.finished_at).any()
    assert record.intervals is not None
    _, device, _, start, end = record.intervals.columns()
    for first in np.unique(device):
        order = np.lexsort((end[device == first], start[device == first]))
        starts, ends = start[device == first][order], end[device == first][order]
        assert (starts[1:] >= ends[:-1] - 1e-9).all()
    assert after is not None
    fresh: Scheduler[Any] = Scheduler(run.cluster, SPEEDS, made)
    half = len(log) // 2
    replay(fresh, log[:half])
    restored: Scheduler[Any] = Scheduler(run.cluster, SPEEDS, made)
    load_state(restored, save_state(fresh))
    assert state_bytes(replay(restored, log[half:])) == state_bytes(after)
