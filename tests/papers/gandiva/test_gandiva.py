"""Gandiva (Xiao et al., OSDI 2018): Algorithm 1, §6.1, Table 1, Figures 7–11, §6.3."""

from dataclasses import replace

import numpy as np
import pytest
from tests.papers.gandiva.recorded_run import MINUTE, P40, Begins, Run, flat

from fairlead.files.bundled import gandiva_packing
from fairlead.mechanisms.gandiva import Gandiva
from fairlead.model.cluster import Accelerator, Cluster
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.physics.gandiva import gandiva_physics

# -- time slices --------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", ["ResNet-50", "LanguageModel"])
def test_six_jobs_on_four_devices_get_four_sixths_each_with_under_2_per_cent_lost(
    workload: str,
) -> None:
    """§6.1, Figure 9: four long jobs, joined by two short ones at 25 minutes."""
    start, span = 25 * MINUTE, 15 * MINUTE
    jobs = [
        *(Job(id=f"long{i}", workload=workload, total_steps=1e5) for i in range(4)),
        *(
            Job(id=f"short{i}", workload=workload, total_steps=6600, arrival_at=start)
            for i in range(2)
        ),
    ]
    # Neighbours on a switch, whom Figure 9 does not show, are another effect.
    physics = gandiva_physics().without("switch")
    cluster = Cluster.of({"p100": 4}, per_node=4)
    run = Run(jobs, flat(workload), cluster, Gandiva(packing=False), {"physics": physics})
    for job in jobs:
        held = sum(
            max(min(end, start + span) - max(begin, start), 0.0)
            for begin, end, _ in run.leases(job.id)
        )
        assert held / span == pytest.approx(4 / 6, abs=1e-6)
    # Device time held beyond what the steps take at full speed, over that of the overload.
    lost_s = run.record.device_s.sum() - sum(job.total_steps for job in jobs) / 10
    overload_s = 4 * (run.record.finished_at[4:].max() - start)
    assert 0 < lost_s / overload_s < 0.02


def test_weights_divide_the_time_of_a_server() -> None:
    """§4.2.1: weighted round-robin; weight 2 gets twice the time of weight 1."""
    jobs = [
        Job(id=f"j{i}", workload="ResNet-50", total_steps=6e4 * w, weight=w)
        for i, w in enumerate((1.0, 1.0, 2.0, 4.0))
    ]
    cluster = Cluster.of({"p100": 2}, per_node=2)
    run = Run(jobs, flat("ResNet-50"), cluster, Gandiva(packing=False))
    assert run.record.finished_at == pytest.approx([24e3] * 4, rel=0.01)


def test_higher_priority_is_never_suspended_for_a_lower_one() -> None:
    """§4.2.2, time-slicing."""
    jobs = [
        *(Job(id=f"low{i}", workload="VAE", total_steps=6000) for i in range(3)),
        Job(id="high", workload="VAE", total_steps=9000, priority=1, arrival_at=90.0),
    ]
    cluster = Cluster.of({"p100": 2}, per_node=2)
    run = Run(jobs, flat("VAE"), cluster, Gandiva(packing=False))
    ((begin, end, _),) = run.leases("high")
    assert begin == pytest.approx(120.0)
    assert end - begin == pytest.approx(900.0)
    assert all(len(run.leases(f"low{i}")) > 1 for i in range(3))


def test_lower_priority_moves_to_another_server_when_higher_ones_fill_its_own() -> None:
    """§4.2.2: "the lower priority job will be migrated to another server, if feasible"."""
    high = Job(
        id="high",
        workload="VAE",
        total_steps=1e4,
        priority=2,
        accelerators=("p100",),
        arrival_at=90.0,
    )
    jobs = [
        Job(id="low", workload="VAE", total_steps=1e4),
        *(Job(id=f"other{i}", workload="VAE", total_steps=1e4, priority=1) for i in range(2)),
        high,
    ]
    cluster = Cluster.of({"p100": 1, "p40": 3})
    speeds = flat("VAE", accelerators=("p100", "p40"))
    run = Run(jobs, speeds, cluster, Begins(homes=((0,), (1,), (2,))))
    assert run.homes(60.0)["low"] == {0: 1}
    assert run.homes(120.0)["high"] == {0: 1}
    assert run.homes(120.0)["low"] == {1: 1}
    assert np.isfinite(run.record.finished_at).all()


# -- Algorithm 1 --------------------------------------------------------------------------------


def test_jobs_of_one_size_share_servers_and_load_is_balanced() -> None:
    """Figure 7: sixteen devices; twelve 1-device jobs, two of 2, one of 4 devices."""
    jobs = [
        *(Job(id=f"one{i}", workload="VAE", total_steps=1e5) for i in range(12)),
        *(Job(id=f"two{i}", workload="VAE", gang=2, total_steps=1e5) for i in range(2)),
        Job(id="four", workload="VAE", gang=4, total_steps=1e5),
    ]
    order = [0, 12, 14, 1, 13, *range(2, 12)]
    mixed = [replace(jobs[k], arrival_at=float(i)) for i, k in enumerate(order)]
    cluster = Cluster.of({"p100": 16}, per_node=4)
    slices = Gandiva(packing=False, migration=False)
    run = Run(mixed, flat("VAE"), cluster, slices, {"window": (0, 1)})
    homes = run.homes(60.0)
    assert homes["four"] == {2: 4}
    assert homes["two0"] == homes["two1"] == {1: 2}
    ones = [next(iter(homes[f"one{i}"])) for i in range(12)]
    assert sorted(np.bincount(ones).tolist()) == [0, 0, 6, 6]


def test_gang_spreads_over_servers_when_only_fragments_are_free() -> None:
    """Algorithm 1, lines 9–10."""
    ones = [Job(id=f"one{i}", workload="VAE", total_steps=1e4) for i in range(6)]
    two = Job(id="two", workload="VAE", gang=2, total_steps=1e4, arrival_at=70.0)
    homes = ((0,), (1,), (2,), (4,), (5,), (6,))
    cluster = Cluster.of({"p100": 8}, per_node=4)
    run = Run([*ones, two], flat("VAE"), cluster, Begins(homes=homes, migration=False))
    assert run.homes(120.0)["two"] == {0: 1, 1: 1}
    assert run.leases("two")[0][0] == 70.0  # on free devices it starts at once


# -- packing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", P40)
def test_packing_is_tried_and_kept_just_where_table_1_gains(workload: str) -> None:
    """Table 1: two like jobs on one P40; VAE and SuperResolution stay, ResNet-50 does not."""
    speeds = SpeedTable({SpeedKey(workload, 1, "p40"): P40[workload]})
    jobs = [Job(id=f"j{i}", workload=workload, total_steps=P40[workload] * 1800) for i in range(2)]
    run = Run(jobs, speeds, Cluster.of({"p40": 1}))
    tried = [at for at, _ in run.memories() if (0, 1) in run.units(at)]
    assert tried
    last = max(at for at, _ in run.memories() if at < run.record.finished_at.min())
    gains = gandiva_packing()[workload].ratio > 1
    assert (run.units(last) == {(0, 1)}) == gains
    if gains:
        assert run.record.finished_at.max() < 3600
    else:
        assert len(tried) == 1
        assert run.memory(last).failed == ((0, 1),)


@pytest.mark.parametrize(("workload", "count"), [("VAE", 6), ("SuperResolution", 4)])
def test_as_many_jobs_share_a_device_as_its_gain_takes(workload: str, count: int) -> None:
    """Table 1: +412 % needs six jobs on a device, +260 % four."""
    speeds = SpeedTable({SpeedKey(workload, 1, "p40"): P40[workload]})
    jobs = [
        Job(id=f"j{i}", workload=workload, total_steps=P40[workload] * 3600) for i in range(count)
    ]
    run = Run(jobs, speeds, Cluster.of({"p40": 1}))
    assert run.units(30 * MINUTE) == {tuple(range(count))}
    total = run.memory(30 * MINUTE).trials[0, 0]
    assert total == pytest.approx(gandiva_packing()[workload].ratio, rel=0.01)


def test_nothing_is_packed_without_overload() -> None:
    jobs = [Job(id=f"j{i}", workload="VAE", total_steps=1e4) for i in range(4)]
    run = Run(jobs, flat("VAE"), Cluster.of({"p100": 4}, per_node=4))
    assert all(len(unit) == 1 for _, memory in run.memories() for unit in memory.units)


def test_jobs_that_do_not_fit_into_memory_together_are_not_packed() -> None:
    cluster = Cluster.of({"p100": 1}, details={"p100": Accelerator("p100", memory_gib=16.0)})
    jobs = [
        Job(id=f"j{i}", workload="VAE", total_steps=1e4, memory_gib=gib)
        for i, gib in enumerate((9.0, 8.0))
    ]
    run = Run(jobs, flat("VAE"), cluster)
    assert all(len(unit) == 1 for _, memory in run.memories() for unit in memory.units)
    small = [replace(job, memory_gib=7.0) for job in jobs]
    assert (0, 1) in Run(small, flat("VAE"), cluster).units(180.0)


def test_least_utilised_job_goes_onto_least_utilised_device() -> None:
    use = {"b": 0.1, "c": 0.3, "d": 0.2, "a": 0.9}
    jobs = [
        Job(id=name, workload="VAE", total_steps=1e5, utilization=part)
        for name, part in use.items()
    ]
    run = Run(jobs, flat("VAE"), Cluster.of({"p100": 3}, per_node=3), more={"window": (0, 1)})
    first = next(unit for _, memory in run.memories() for unit in memory.units if len(unit) > 1)
    assert {jobs[number].id for number in first} == {"b", "d"}


def test_packed_jobs_that_lose_by_it_get_devices_of_their_own_when_some_are_free() -> None:
    jobs = [
        *(Job(id=f"j{i}", workload="RHN", total_steps=4e4) for i in range(2)),
        Job(id="short", workload="RHN", total_steps=4e3),
    ]
    run = Run(jobs, flat("RHN"), Cluster.of({"p100": 2}, per_node=2))
    packed = [at for at, memory in run.memories() if any(len(u) > 1 for u in memory.units)]
    assert packed
    assert max(packed) <= run.record.finished_at[2] + MINUTE
    assert run.units(max(at for at, _ in run.memories())) <= {(0,), (1,)}
