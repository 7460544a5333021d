"""Baseline schedulers of the papers: their documented behaviour on small cases.

Sources: Tiresias with two queues and promotion off as Hadar configures it (§IV-B) and least
attained service as in Gavel §4.1; finish-time fairness as in Gavel §4.2 (Themis); AlloX as in
Gavel §7.3; the capacity scheduler as in Hadar §IV-B and Gandiva §6.4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.support.shared_data import needs_shared, shared

from fairlead.files import read_cluster, read_speeds, read_trace
from fairlead.mechanisms.allox import AlloX
from fairlead.mechanisms.capacity import Capacity
from fairlead.mechanisms.factory import create_mechanism
from fairlead.mechanisms.srtf import Srtf
from fairlead.mechanisms.themis import Themis, finish_time_fairness
from fairlead.mechanisms.tiresias import Tiresias
from fairlead.model.cluster import Cluster
from fairlead.model.events import Event, PlanReady
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.job import Job
from fairlead.model.lease import Placement
from fairlead.model.snapshot import snapshot_of
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.model.tenants.tenant import Tenant
from fairlead.sim.driver import simulate
from fairlead.sim.record import Record
from fairlead.sim.scenario import Scenario

HOUR = 3600.0


def table(
    speeds: Mapping[str, Mapping[str, float]], gangs: Sequence[int] = (1, 2, 4)
) -> SpeedTable:
    return SpeedTable(
        {
            SpeedKey(workload, gang, accelerator): speed
            for workload, row in speeds.items()
            for accelerator, speed in row.items()
            for gang in gangs
        }
    )


ONE = table({"m": {"v100": 1.0}})


def run(
    mechanism: Any,
    devices: Mapping[str, int],
    jobs: Sequence[Job],
    speeds: SpeedTable = ONE,
    **more: Any,
) -> Record:
    record, _ = simulate(
        Scenario(
            cluster=Cluster.of(devices), speeds=speeds, jobs=jobs, mechanism=mechanism, **more
        )
    )
    return record


def job(name: str, hours: float, at_h: float = 0.0, **more: Any) -> Job:
    return Job(id=name, workload="m", total_steps=hours * HOUR, arrival_at=at_h * HOUR, **more)


# -- Tiresias -----------------------------------------------------------------------------------


def test_new_job_displaces_one_that_has_had_its_service() -> None:
    jobs = [job("old", 3), job("new", 0.5, at_h=1)]
    record = run(Tiresias(), {"v100": 1}, jobs)
    assert record.finished_at.tolist() == pytest.approx([3.5 * HOUR, 1.5 * HOUR])
    assert record.preemptions.tolist() == [1, 0]


def test_job_within_its_first_service_is_not_displaced() -> None:
    jobs = [job("old", 0.8), job("new", 0.1, at_h=0.5)]
    record = run(Tiresias(), {"v100": 1}, jobs)
    assert record.finished_at.tolist() == pytest.approx([0.8 * HOUR, 0.9 * HOUR])


def test_service_counts_all_devices_of_a_gang() -> None:
    """A gang of 4 falls into the second queue after a quarter of the time."""
    wide = run(Tiresias(), {"v100": 4}, [job("w", 2, gang=4), job("n", 0.2, at_h=0.25, gang=4)])
    assert wide.finished_at[1] == pytest.approx((0.3 + 0.2) * HOUR)
    one = run(Tiresias(), {"v100": 1}, [job("w", 2), job("n", 0.2, at_h=0.25)])
    assert one.finished_at[1] == pytest.approx((0.9 + 0.2) * HOUR)


def test_second_queue_is_never_promoted_and_waits_for_the_first_to_empty() -> None:
    jobs = [job("long", 2), *(job(f"short{i}", 0.5, at_h=1 + 0.5 * i) for i in range(20))]
    record = run(Tiresias(), {"v100": 1}, jobs)
    assert record.finished_at[0] == pytest.approx(12 * HOUR)
    assert record.finished_at.argmax() == 0


def test_within_a_queue_it_is_first_in_first_out() -> None:
    jobs = [job(name, 2) for name in "abc"]
    record = run(Tiresias(), {"v100": 1}, jobs)
    assert record.finished_at[0] < record.finished_at[1] < record.finished_at[2]


@pytest.mark.parametrize("mechanism", [Tiresias(), Themis(round_s=360.0), Capacity()])
def test_agnostic_schedulers_decide_alike_when_accelerators_swap_their_speeds(
    mechanism: Any,
) -> None:
    jobs = [replace(job(f"j{i}", 0.3 + 0.1 * i, at_h=0.1 * i), gang=1 + i % 2) for i in range(9)]
    same = {"m": {"v100": 1.0, "p100": 1.0}}
    # The true speeds stay, so progress does too; only the believed speeds are swapped.
    believed = [
        table({"m": {"v100": fast, "p100": 4.0 - fast}}, gangs=(1, 2)) for fast in (3.0, 1.0)
    ]
    plans = [_starts(mechanism, jobs, table(same), belief) for belief in believed]
    assert any(plans[0])
    assert plans[0] == plans[1]


def _starts(
    mechanism: Any, jobs: Sequence[Job], speeds: SpeedTable, believed: SpeedTable
) -> list[list[Placement]]:
    """Return the placements that every plan of a run starts."""
    seen: list[list[Placement]] = []

    def note(event: Event) -> None:
        if isinstance(event, PlanReady):
            seen.append([*event.plan.start])

    run(mechanism, {"v100": 2, "p100": 2}, jobs, speeds, believed=believed, on_event=note)
    return seen


# -- Themis -------------------------------------------------------------------------------------


def test_finish_time_fairness_is_shared_over_isolated_time() -> None:
    """Two equal jobs on one device: alone with half of it each would take twice its time."""
    cluster = Cluster.of({"v100": 1})
    jobs = tuple(
        InstanceJob(id=name, speeds={"v100": 1.0}, steps_left=HOUR, elapsed_s=waited)
        for name, waited in (("a", 0.0), ("b", HOUR))
    )
    rho = finish_time_fairness(snapshot_of(Instance(cluster=cluster, jobs=jobs)))
    assert rho.tolist() == pytest.approx([0.5, 1.0])


def test_worst_finish_time_fairness_goes_first_so_that_equal_jobs_finish_alike() -> None:
    jobs = [job(name, 4) for name in "abcd"]
    record = run(Themis(round_s=600.0), {"v100": 2}, jobs)
    assert record.finished_at.min() > 7 * HOUR
    assert record.finished_at.max() == pytest.approx(8 * HOUR)


def test_short_job_is_served_before_a_long_one_that_has_waited_as_long() -> None:
    """An hour of waiting is worse for the job that needs an hour than for one that needs ten."""
    jobs = [job("runs", 1), job("long", 10, at_h=0.1), job("short", 1, at_h=0.1)]
    record = run(Themis(), {"v100": 1}, jobs)
    assert record.finished_at[2] < record.finished_at[1]


def test_finish_time_fairness_stays_near_one_under_contention() -> None:
    rng = np.random.default_rng(3)
    jobs = [job(f"j{i}", float(rng.uniform(0.5, 5)), at_h=0.0) for i in range(24)]
    record = run(Themis(), {"v100": 8}, jobs)
    alone = np.array([j.total_steps for j in jobs])
    rho = record.finished_at / (alone * 24 / 8)
    assert rho.max() < 1.15, "nobody finishes much later than with 1/n of the devices"


# -- AlloX --------------------------------------------------------------------------------------

TWO = {
    "a": {"v100": 4.0, "k80": 1.0},
    "b": {"v100": 3.0, "k80": 2.0},
    "c": {"v100": 2.0, "k80": 1.9},
    "d": {"v100": 5.0, "k80": 0.5},
}


@pytest.mark.parametrize("seed", range(12))
def test_allox_reaches_the_least_total_completion_time_of_all_queues(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = rng.choice(list(TWO), size=5)
    jobs = [
        Job(id=f"{i}", workload=str(name), total_steps=float(rng.integers(2000, 40_000)))
        for i, name in enumerate(names)
    ]
    devices = ("v100", "k80", "k80")
    time = [
        [j.total_steps / TWO[j.workload][accelerator] for accelerator in devices] for j in jobs
    ]
    least = np.inf
    for on in product(range(3), repeat=len(jobs)):
        ends = 0.0
        for device in range(3):
            clock = 0.0  # on one device shortest first is best
            for seconds in sorted(time[i][device] for i in range(len(jobs)) if on[i] == device):
                clock += seconds
                ends += clock
        least = min(least, ends)
    record = run(AlloX(), {"v100": 1, "k80": 2}, jobs, table(TWO))
    assert record.finished_at.sum() == pytest.approx(least)
    assert not record.preemptions.any()


def test_allox_starves_a_long_job_while_short_ones_keep_coming() -> None:
    shorts = [job(f"s{i}", 0.5, at_h=0.4 * i) for i in range(20)]
    record = run(AlloX(), {"v100": 1}, [shorts[0], job("long", 5), *shorts[1:]])
    assert record.finished_at.argmax() == 1


def test_allox_holds_devices_back_for_a_gang_whose_turn_has_come() -> None:
    jobs = [job("x", 1), job("y", 2), job("gang", 3, gang=2), job("late", 20, at_h=1.2)]
    record = run(AlloX(), {"v100": 2}, jobs)
    assert record.finished_at[2] == pytest.approx(5 * HOUR)
    assert record.started_at[3] >= 5 * HOUR


# -- Shortest remaining time first --------------------------------------------------------------


def test_shorter_job_displaces_a_longer_one_at_the_next_round() -> None:
    record = run(Srtf(), {"v100": 1}, [job("long", 3), job("short", 1, at_h=0.55)])
    assert record.finished_at.tolist() == pytest.approx([4 * HOUR, 1.6 * HOUR])


def test_job_moves_to_the_fastest_accelerator_when_it_has_room() -> None:
    speeds = table({"m": {"v100": 2.0, "k80": 1.0}})
    record = run(Srtf(), {"v100": 1, "k80": 1}, [job("short", 2), job("long", 3)], speeds)
    assert record.finished_at.tolist() == pytest.approx([HOUR, 2 * HOUR])
    assert record.migrations.tolist() == [0, 1]


# -- Capacity scheduler -------------------------------------------------------------------------


def test_capacity_preempts_no_job_and_is_first_in_first_out_inside_a_tenant() -> None:
    jobs = [job("a", 3), job("b", 0.1, at_h=0.1), job("c", 2, at_h=0.2)]
    record = run(Capacity(), {"v100": 1}, jobs)
    assert record.finished_at.tolist() == pytest.approx([3 * HOUR, 3.1 * HOUR, 5.1 * HOUR])
    assert not record.preemptions.any()


def test_idle_capacity_is_lent_and_returned_as_jobs_end() -> None:
    red = [job(f"r{i}", 2, tenant="red") for i in range(8)]
    blue = [job(f"b{i}", 2, at_h=0.5, tenant="blue") for i in range(4)]
    record = run(Capacity(), {"v100": 4}, [*red, *blue])
    assert (record.started_at[:4] == 0).all(), "red borrows what blue leaves idle"
    assert record.started_at[8:10].tolist() == pytest.approx([2 * HOUR] * 2)
    assert record.started_at[4:6].tolist() == pytest.approx([2 * HOUR] * 2)


def test_guaranteed_devices_go_to_their_tenant_as_soon_as_they_are_idle() -> None:
    tenants = [Tenant("red", guarantee={"v100": 3}), Tenant("blue", guarantee={"v100": 1})]
    red = [job(f"r{i}", 2, at_h=0.5, tenant="red") for i in range(6)]
    blue = [job(f"b{i}", 2, tenant="blue") for i in range(8)]
    record = run(Capacity(), {"v100": 4}, [*blue, *red], tenants=tenants)
    started = record.started_at / HOUR
    assert np.count_nonzero(started[:8] == 0) == 4
    assert np.count_nonzero(started[8:] == 2) == 3
    assert np.count_nonzero(started[:8] == 2) == 1


def test_limit_holds_even_if_devices_stay_idle() -> None:
    jobs = [job(f"r{i}", 1, tenant="red") for i in range(4)]
    record = run(Capacity(), {"v100": 4}, jobs, tenants=[Tenant("red", limit={"v100": 1})])
    assert record.finished_at.tolist() == pytest.approx([i * HOUR for i in (1, 2, 3, 4)])


def test_limit_of_a_tenant_covers_tenants_inside_it() -> None:
    tenants = [
        Tenant("lab", limit={"v100": 1}),
        Tenant("a", parent="lab"),
        Tenant("b", parent="lab"),
    ]
    jobs = [job("x", 1, tenant="a"), job("y", 1, tenant="b")]
    record = run(Capacity(), {"v100": 4}, jobs, tenants=tenants)
    assert record.finished_at.tolist() == pytest.approx([HOUR, 2 * HOUR])


def test_waiting_gang_keeps_devices_from_later_jobs_until_it_fits() -> None:
    jobs = [
        job("x", 1, tenant="red"),
        job("y", 2, tenant="red"),
        job("gang", 1, at_h=0.1, gang=2, tenant="blue"),
        *(job(f"z{i}", 1, at_h=0.2, tenant="green") for i in range(3)),
    ]
    record = run(Capacity(), {"v100": 2}, jobs)
    assert record.started_at[2] == pytest.approx(2 * HOUR)
    assert (record.started_at[3:] >= 3 * HOUR - 1).all()


# -- On the shared trace ------------------------------------------------------------------------


@needs_shared
@pytest.mark.reference
@pytest.mark.parametrize("name", ["tiresias", "themis", "allox", "capacity", "srtf"])
def test_all_jobs_of_the_static_trace_finish(name: str) -> None:
    jobs = read_trace(shared("reference/gavel/static_single_100_seed0.csv.gz")).jobs
    record, _ = simulate(
        Scenario(
            cluster=read_cluster("v100=6/2,p100=6/2,k80=6/2"),
            speeds=read_speeds(shared("data/gavel/simulation_throughputs.json.gz")),
            jobs=jobs,
            mechanism=create_mechanism(name, None, 360.0),
        )
    )
    assert len(jobs) == 100
    assert not np.isnan(record.finished_at).any()
