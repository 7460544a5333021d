"""Hadar (§II-§IV): its examples, corrected from the definitions; prices, queue and scale."""

import csv
import gzip
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.support.shared_data import needs_shared, shared

from fairlead.cli.research.runs import run_simulation
from fairlead.core import Scheduler
from fairlead.files import read_speeds
from fairlead.mechanisms.factory import create_mechanism
from fairlead.mechanisms.hadar.dp_allocation import allocate_queue
from fairlead.mechanisms.hadar.find_alloc import (
    Bid,
    DeviceCells,
    DeviceMarket,
    MarketState,
)
from fairlead.mechanisms.hadar.mechanism import Hadar, HadarMemory
from fairlead.mechanisms.hadar.prices import Prices
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster
from fairlead.model.commands import ComputePlan
from fairlead.model.errors import InputError
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.driver import simulate
from fairlead.sim.metrics import Result
from fairlead.sim.record import Record
from fairlead.sim.runs import SimulationOptions
from fairlead.sim.scenario import Scenario
from fairlead.testing.cpu_time import cpu_s

KINDS = ("v100", "p100", "k80")


def _two_jobs(mechanism: Hadar) -> Record:
    """Simulate the corrected example of §II, in which a round is 1 s and a step an epoch."""
    rows = {"J1": (40.0, 20.0, 30.0), "J2": (5.0, 15.0, 5.0)}
    speeds = SpeedTable(
        {
            SpeedKey(job, 3, accelerator): speed
            for job, row in rows.items()
            for accelerator, speed in zip(KINDS, row, strict=True)
        }
    )
    jobs = [
        Job(id=job, workload=job, gang=3, total_steps=steps)
        for job, steps in (("J1", 60.0), ("J2", 30.0))
    ]
    cluster = Cluster.of({"v100": 2, "p100": 3, "k80": 1})
    record, _ = simulate(Scenario(cluster=cluster, speeds=speeds, jobs=jobs, mechanism=mechanism))
    return record


def test_two_jobs_of_section_2_take_two_rounds_with_mixed_gangs_and_five_without() -> None:
    """§II as corrected: J1 on two V100 and the K80 (30 epochs a round), J2 on three P100 (15)."""
    mixed = _two_jobs(Hadar(round_s=1.0))
    assert mixed.rounds == 2
    assert mixed.finished_at.tolist() == [2.0, 2.0]
    plain = _two_jobs(Hadar(round_s=1.0, mixed=False))
    assert plain.rounds == 5
    assert plain.finished_at.max() == 5.0


@pytest.mark.parametrize("policy", ["hadar", "hadare"])
def test_a_gang_of_four_runs_on_three_v100_and_three_k80(policy: str, tmp_path: Path) -> None:
    """§I: a gang of four that would have to wait for a fourth V100 under Gavel."""
    (tmp_path / "speeds.csv").write_text(
        "workload,gang,accelerator,steps_per_s\nm,4,v100,8\nm,4,k80,2\nm,1,v100,3\n"
    )
    (tmp_path / "trace.csv").write_text(
        "job_id,arrival_s,workload,gang,total_steps\na,1,m,4,1000\n"
    )

    def run(policy: str) -> Result:
        setup = SimulationOptions(
            cluster="v100=3/1,k80=3/1",
            speeds=str(tmp_path / "speeds.csv"),
            policy=policy,
            trace=str(tmp_path / "trace.csv"),
        )
        return run_simulation(setup)

    result = run(policy)
    assert result.makespan_s == pytest.approx(1000.0 / 2.0)  # the slowest member's pace
    (job,) = result.jobs
    assert job.device_s == pytest.approx({"v100": 1500.0, "k80": 500.0})
    for plain in ("max-min", "gandiva", f"{policy}:mixed=false"):
        with pytest.raises(InputError, match="needs 4 devices of one accelerator") as refused:
            run(plain)
        assert refused.value.field == "gang"


def test_price_is_u_min_on_an_empty_node_and_u_max_on_a_full_one() -> None:
    """Eq. 5."""
    prices = Prices(np.array([0.25, 0.5]), np.array([16.0, 8.0]))
    assert prices.price(0, 0, 4) == 0.25
    assert prices.price(0, 4, 4) == pytest.approx(16.0, rel=1e-12)
    assert prices.price(0, 2, 4) == pytest.approx(2.0, rel=1e-12)  # their geometric mean
    assert prices.price(1, 3, 3) == pytest.approx(8.0, rel=1e-12)


# -- the dynamic programme against brute force ---------------------------------------------------


def _random_market(rng: random.Random, n_jobs: int) -> tuple[DeviceMarket, list[int], list[Bid]]:
    cluster = Cluster.of({"v100": 4, "p100": 4, "k80": 2}, per_node=2)
    cells = DeviceCells.of(cluster, range(10))
    queue = []
    for row in range(n_jobs):
        gang = rng.choice([1, 1, 2, 4])
        together = [gang * rng.uniform(0.1, 10.0) for _ in KINDS]
        spread = [u * rng.uniform(0.6, 1.0) if gang > 1 else u for u in together]
        queue.append(Bid(row, gang, together, spread))
    most = [max(max(b.together[k], b.spread[k]) / b.gang for b in queue) for k in range(3)]
    least = min(min(b.together) / b.gang for b in queue) / 4.0 / rng.choice([1, 10, 100])
    prices = Prices(np.full(3, least), np.array(most))
    capacity = [len(devices) for devices in cells.devices]
    market = DeviceMarket(cells, capacity, prices, communication=0.1)
    return market, capacity, queue


def _brute_force(market: DeviceMarket, state: MarketState, queue: Sequence[Bid]) -> float:
    """Return the greatest sum of payoffs over all subsets of the queue."""
    if not queue:
        return 0.0
    best = _brute_force(market, state, queue[1:])
    deal = market.find(state, queue[0])
    if deal is None:
        return best
    return max(best, deal.payoff + _brute_force(market, market.sell(state, deal), queue[1:]))


@pytest.mark.parametrize("n_jobs", [1, 2, 3, 4, 5, 6])
def test_programme_equals_brute_force_for_up_to_six_jobs(n_jobs: int) -> None:
    """Algorithm 2 with the default bound on its state, on 25 random markets of each size."""
    rng = random.Random(n_jobs)
    greedy_falls_short = False
    for _ in range(25):
        market, free, queue = _random_market(rng, n_jobs)
        result = allocate_queue(market, free, queue, width=Hadar.states)
        assert all(deal.payoff > 0 for _, deal in result)
        payoff = sum(deal.payoff for _, deal in result)
        best = _brute_force(market, market.opening(free), queue)
        assert payoff == pytest.approx(best, rel=1e-9)
        greedy = sum(d.payoff for _, d in allocate_queue(market, free, queue, width=1))
        greedy_falls_short |= greedy < best * (1 - 1e-6)
    assert greedy_falls_short or n_jobs < 4  # else the comparison would show nothing


# -- §IV ------------------------------------------------------------------------------------------

_SPEEDS = "data/gavel/simulation_throughputs.json.gz"
_MODELS = ((1.0, ("ResNet-18",)), (10.0, ("CycleGAN",)), (50.0, ("LM", "Transformer")))
_LARGEST, _ANY_GANG = ("ResNet-50",), ("ResNet-18", "LM", "Transformer")


def philly_like(speeds: SpeedTable, *, jobs: int = 480, seed: int = 0) -> list[Job]:
    """Return jobs drawn from Philly's log, models by GPU-hours as in Table II, all there at 0.

    Of the log, jobs with 1, 2, 4 or 8 devices, up to 100 GPU-hours and 20 hours: the paper's
    total of 40 hours leaves no room for longer ones. CycleGAN was measured on one device only;
    larger gangs of its size take another model.
    """
    rng = random.Random(seed)
    with gzip.open(shared("data/philly_via_gavel/philly_vc_jobs.csv.gz"), "rt") as file:
        log = [(int(r["num_gpus"]), float(r["duration_s"])) for r in csv.DictReader(file)]
    log = [(g, s) for g, s in log if g in (1, 2, 4, 8) and g * s <= 360_000 and s <= 72_000]
    result = []
    for i in range(jobs):
        gang, duration_s = log[int(rng.random() * len(log))]
        hours = gang * duration_s / 3600.0
        models = next((m for most, m in _MODELS if hours <= most), _LARGEST)
        options = _options(speeds, models, gang) or _options(speeds, _ANY_GANG, gang)
        workload = options[int(rng.random() * len(options))]
        steps = max(1.0, round(duration_s * speeds.speed(workload, ("v100",) * gang)))
        tenant = f"t{int(rng.random() * 4)}"
        result.append(
            Job(id=str(i), workload=workload, gang=gang, total_steps=steps, tenant=tenant)
        )
    return result


def _options(speeds: SpeedTable, models: tuple[str, ...], gang: int) -> list[str]:
    return [
        w
        for w in speeds.workloads
        if w.split(" (")[0] in models
        and gang in speeds.gangs[w]
        and speeds.speed(w, ("v100",) * gang) > 0
    ]


@needs_shared
@pytest.mark.reference
@pytest.mark.slow
def test_total_duration_of_480_philly_like_jobs_is_shorter_than_under_the_others() -> None:
    """§IV-B: 40 h; 1.67, 1.35 and 1.21 times as long under YARN-CS, Tiresias and Gavel.

    Measured: 115.6 h; ×1.66 under capacity, ×1.61 under tiresias, ×1.16 under max-min in the
    paper's rounds and ×1.15 in ours.
    """
    speeds = read_speeds(shared(_SPEEDS))
    cluster = Cluster.of(dict.fromkeys(KINDS, 20), per_node=4)
    jobs = philly_like(speeds)

    def hours(policy: str, mechanism: str | None = None) -> float:
        record, _ = simulate(
            Scenario(
                cluster=cluster,
                speeds=speeds,
                jobs=jobs,
                mechanism=create_mechanism(policy, mechanism),
                restore_cost_s=10.0,
            )
        )
        assert not np.isnan(record.finished_at).any()
        return float(record.finished_at.max()) / 3600.0

    ours = hours("hadar")
    assert hours("capacity") / ours >= 1.55
    assert hours("tiresias") / ours >= 1.50
    assert hours("max-min", "gavel") / ours >= 1.12
    assert hours("max-min") / ours >= 1.10


@needs_shared
@pytest.mark.reference
@pytest.mark.slow
def test_a_decision_about_2000_jobs_takes_less_than_a_second() -> None:
    """§IV-B, Figure 5: the paper's takes up to 7 minutes with some 2,000 jobs."""
    speeds = read_speeds(shared(_SPEEDS))
    cluster = Cluster.of(dict.fromkeys(KINDS, 84), per_node=4)
    mechanism = Hadar()
    scheduler = Scheduler(cluster, speeds, mechanism)
    for job in philly_like(speeds, jobs=2000):
        scheduler.handle(ev.JobSubmitted(0.0, job))
    times = []
    for at in (0.0, 360.0, 720.0):  # an empty cluster, then full ones
        (ask,) = scheduler.handle(ev.PlanDue(at))
        assert isinstance(ask, ComputePlan)
        assert isinstance(ask.memory, HadarMemory)
        decide = partial(mechanism.plan, ask.snapshot, ask.memory)
        (plan, memory), took_s = cpu_s(decide, tries=2)
        times.append(took_s)
        scheduler.handle(ev.PlanReady(at, ask.version, plan, memory))
        assert len(scheduler.leases.holder[0]) == 252
        assert (scheduler.leases.holder[0] >= 0).all()
        arrival = Job(id=f"at-{at}", workload="CycleGAN", total_steps=1e5, arrival_at=at)
        scheduler.handle(ev.JobSubmitted(at, arrival))  # so that all devices are sold again
    assert max(times) < 1.0
