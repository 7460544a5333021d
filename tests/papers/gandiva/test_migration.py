"""Gandiva's migration, grow-shrink and measurements (§4.2, §5)."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.papers.gandiva.recorded_run import MINUTE, P40, Begins, Run, flat

from fairlead.core import encode_event
from fairlead.mechanisms.gandiva import Gandiva
from fairlead.model.cluster import Cluster
from fairlead.model.events import NodeLost, NodeReturned
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.driver import simulate
from fairlead.sim.physics.gandiva import gandiva_physics
from fairlead.sim.scenario import Scenario
from fairlead.testing.mechanisms.checked import checked_mechanism
from fairlead.testing.mechanisms.scenarios import mixed_gangs, nodes_come_and_go

# -- migration ----------------------------------------------------------------------------------

FIGURE_8 = ((0, 1), (2, 4), (5, 8), (9, 12), (3, 6, 7, 10, 11, 13, 14, 15))
"""J0 to J3 with two devices each and DeepSpeech with eight, on four servers of four"""


def test_departure_lets_jobs_move_together() -> None:
    """Figure 8: DeepSpeech ends after three minutes, and J1, J2 and J3 are each united."""
    jobs = [
        *(Job(id=f"J{i}", workload="VGG16", gang=2, total_steps=2e4) for i in range(4)),
        Job(id="D", workload="DeepSpeech", gang=8, total_steps=180 * 80 * 0.95),
    ]
    speeds, cluster = flat("VGG16", "DeepSpeech"), Cluster.of({"p100": 16}, per_node=4)
    run = Run(jobs, speeds, cluster, Begins(homes=FIGURE_8))
    before = {job: len(home) for job, home in run.homes(120.0).items()}
    assert before == {"J0": 1, "J1": 2, "J2": 2, "J3": 2, "D": 4}
    united = run.homes(240.0)
    assert {job: len(home) for job, home in united.items()} == {f"J{i}": 1 for i in range(4)}
    assert len(run.leases("J0")) == 1  # it was united before, and nobody touches it
    # Apart they run at half their speed (physics), so that moving pays for itself.
    apart = Run(jobs, speeds, cluster, Begins(homes=FIGURE_8, migration=False))
    assert (run.record.finished_at[1:4] < 0.75 * apart.record.finished_at[1:4]).all()


def test_suspended_job_moves_to_a_vacated_device_anywhere() -> None:
    """§4.2.1: departures lower the height of the cluster."""
    jobs = [
        *(Job(id=f"long{i}", workload="ResNet-50", total_steps=1e5) for i in range(2)),
        *(Job(id=f"short{i}", workload="ResNet-50", total_steps=1500) for i in range(2)),
        Job(id="late", workload="ResNet-50", total_steps=1e5, arrival_at=30.0),
    ]
    homes = ((0,), (1,), (2,), (3,))
    cluster = Cluster.of({"p100": 4}, per_node=2)
    moved = Run(jobs, flat("ResNet-50"), cluster, Begins(homes=homes, packing=False))
    assert moved.record.finished_at[[0, 1, 4]] == pytest.approx([1e4] * 3, rel=0.03)
    stuck = Begins(homes=homes, packing=False, migration=False)
    stays = Run(jobs, flat("ResNet-50"), cluster, stuck)
    assert stays.record.finished_at.max() > 1.3e4


def test_job_moves_away_from_a_neighbour_that_slows_it() -> None:
    """§4.1 (ii): two language models on a switch lose 19 % each, until one is moved."""
    jobs = [
        Job(id="first", workload="LanguageModel", total_steps=2e4),
        Job(id="second", workload="LanguageModel", total_steps=2e4, arrival_at=130.0),
    ]
    run = Run(jobs, flat("LanguageModel"), Cluster.of({"p100": 8}, per_node=4))
    assert run.homes(120.0) == {"first": {0: 1}}
    assert run.leases("second")[0][0] == 130.0  # beside the first, whose size it has
    assert run.homes(180.0) == {"first": {1: 1}, "second": {0: 1}}
    assert run.homes(1800.0) == run.homes(180.0)  # and nobody moves them together again
    assert run.record.finished_at[0] == pytest.approx(2000 + 0.19 * 50 + 2.0)


def test_mostly_free_servers_are_emptied_for_coming_gangs() -> None:
    """§4.2.2: servers with three of four devices free give their jobs away."""
    jobs = [
        *(Job(id=f"j{i}", workload="ResNet-50", total_steps=3e4) for i in range(3)),
        Job(id="gang", workload="ResNet-50", gang=4, total_steps=4000, arrival_at=100.0),
    ]
    cluster = Cluster.of({"p100": 12}, per_node=4)
    run = Run(jobs, flat("ResNet-50"), cluster, Begins(homes=((0,), (4,), (8,))))
    assert len({next(iter(home)) for home in run.homes(60.0).values()}) == 1
    assert len(run.homes(120.0)["gang"]) == 1
    assert run.leases("gang")[0][0] == 100.0


# -- grow-shrink --------------------------------------------------------------------------------


def figure_11(*, declared: bool) -> Run:
    size = {"long": 1, "short1": 1, "short2": 2, "new2": 2, "new1": 1}
    steps = {"long": 1.5e5, "short1": 25 * 600, "short2": 45 * 1200, "new2": 1e5, "new1": 1e5}
    come = {"new2": 75 * MINUTE, "new1": 85 * MINUTE}
    jobs = [
        Job(
            id=name,
            workload="ResNet-50",
            gang=gang,
            total_steps=steps[name],
            arrival_at=come.get(name, 0.0),
            max_gang=4 if name == "long" and declared else None,
        )
        for name, gang in size.items()
    ]
    return Run(jobs, flat("ResNet-50"), Cluster.of({"p100": 4}, per_node=4))


def test_declared_job_grows_after_an_idle_period_and_shrinks_at_once() -> None:
    """Figure 11: 1 → 2 after the first departure, → 4 after the second, → 2 → 1 for new jobs."""
    run = figure_11(declared=True)
    grown = [(start / MINUTE, size) for start, _, size in run.leases("long")]
    assert grown == [(0, 1), (30, 2), (50, 4), (75, 2), (85, 1)]
    assert run.leases("new2")[0][0] == 75 * MINUTE
    assert run.leases("new1")[0][0] == 85 * MINUTE


def test_job_that_is_not_declared_never_grows() -> None:
    run = figure_11(declared=False)
    assert {size for _, _, size in run.leases("long")} == {1}


def test_growth_that_was_measured_to_be_of_no_use_is_taken_back() -> None:
    speeds = SpeedTable({SpeedKey("VAE", g, "p100"): 10.0 for g in (1, 2, 3, 4)})
    job = Job(id="j", workload="VAE", total_steps=2e4, max_gang=4)
    run = Run([job], speeds, Cluster.of({"p100": 4}, per_node=4))
    sizes = [size for _, _, size in run.leases("j")]
    assert sizes == [1, 4, 1]


# -- measurements only --------------------------------------------------------------------------


def permuted(speeds: SpeedTable) -> SpeedTable:
    """Return the same speeds homes to other workloads and accelerators."""
    keys = list(speeds.steps_per_s)
    values = list(speeds.steps_per_s.values())
    return SpeedTable(dict(zip(keys, values[7:] + values[:7], strict=True)))


def test_plans_follow_from_measurements_whatever_speeds_are_believed() -> None:
    speeds = SpeedTable(
        {
            SpeedKey(w, g, accelerator): speed * g * fast
            for w, speed in P40.items()
            for g in (1, 2, 4)
            for accelerator, fast in (("p40", 1), ("p100", 2))
        }
    )
    jobs = [
        Job(
            id=f"j{i}",
            workload=list(P40)[i % 8],
            gang=(1, 1, 2, 1, 4)[i % 5],
            total_steps=3e4,
            arrival_at=40.0 * i,
        )
        for i in range(40)
    ]
    cluster = Cluster.of({"p40": 8, "p100": 8}, per_node=4)

    def plans(believed: SpeedTable | None, true: SpeedTable) -> list[str]:
        run = Run(jobs, true, cluster, more={"believed": believed})
        assert any(len(u) > 1 for _, memory in run.memories() for u in memory.units)
        return [encode_event(ready) for ready in run.plans]

    assert plans(permuted(speeds), speeds) == plans(None, speeds)
    assert plans(None, permuted(speeds)) != plans(None, speeds)


@pytest.mark.parametrize("scenario", [mixed_gangs, nodes_come_and_go])
def test_plans_can_be_carried_out_while_it_packs_moves_and_grows(scenario: Any) -> None:
    repeated: Scenario = scenario(Gandiva())
    jobs = [
        replace(job, utilization=(0.1, 0.5, 0.9)[i % 3], max_gang=4 if i % 5 == 0 else None)
        for i, job in enumerate(repeated.jobs)
    ]
    record, _ = simulate(
        replace(
            repeated,
            jobs=jobs,
            mechanism=checked_mechanism(repeated.mechanism, jobs),
            physics=gandiva_physics(),
        )
    )
    assert not np.isnan(record.finished_at).any()


def test_lost_server_sends_its_jobs_elsewhere_and_is_used_when_it_returns() -> None:
    jobs = [Job(id=f"j{i}", workload="ResNet-50", total_steps=2e4) for i in range(8)]
    events = [NodeLost(200.0, "p100-0"), NodeReturned(900.0, "p100-0")]
    run = Run(
        jobs,
        flat("ResNet-50"),
        Cluster.of({"p100": 8}, per_node=4),
        Gandiva(packing=False),
        {"node_events": events, "checkpoint_s": 10.0},
    )
    assert all(list(home) == [1] for home in run.homes(240.0).values())
    assert sorted(next(iter(home)) for home in run.homes(960.0).values()) == [0] * 4 + [1] * 4
