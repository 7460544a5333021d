"""Gandiva (Xiao et al., OSDI 2018): Algorithm 1, §6.1, Table 1, Figures 7–11, §6.3."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from fairlead.core import encode_event
from fairlead.files.bundled import gandiva_packing
from fairlead.mechanisms.gandiva import Gandiva
from fairlead.mechanisms.gandiva.memory import Memory
from fairlead.model.cluster import Accelerator, Cluster
from fairlead.model.events import Event, NodeLost, NodeReturned, PlanReady
from fairlead.model.job import Job
from fairlead.model.lease import Placement, Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.driver import simulate
from fairlead.sim.physics.gandiva import gandiva_physics
from fairlead.sim.scenario import Scenario
from fairlead.testing.mechanisms.checked import watched
from fairlead.testing.mechanisms.scenarios import mixed_gangs, nodes_come_and_go

P40 = {
    "VAE": 81.8,
    "SuperResolution": 40.3,
    "RHN": 10.1,
    "SCRNN": 16.7,
    "MI-LSTM": 22.2,
    "LSTM": 63.8,
    "ResNet-50": 10.3,
    "ResNext-50": 83.6,
}
"""Table 1: mini-batches per second of one job alone on a P40"""
MINUTE = 60.0


def flat(*workloads: str, kinds: Sequence[str] = ("p100",)) -> SpeedTable:
    """Return speeds of 10 steps per second for each device, whatever the workload."""
    return SpeedTable(
        {SpeedKey(w, g, k): 10.0 * g for w in workloads for g in (1, 2, 4, 8) for k in kinds}
    )


@dataclass
class Run:
    """A simulation under Gandiva, with what it kept in mind at every plan."""

    jobs: Sequence[Job]
    speeds: SpeedTable
    cluster: Cluster
    mechanism: Any = field(default_factory=Gandiva)
    more: Mapping[str, Any] = field(default_factory=dict)
    plans: list[PlanReady] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.record, _ = simulate(
            Scenario(
                cluster=self.cluster,
                speeds=self.speeds,
                jobs=self.jobs,
                mechanism=self.mechanism,
                intervals=True,
                on_event=self._note,
                **{"physics": gandiva_physics(), **self.more},
            )
        )

    def _note(self, event: Event) -> None:
        if isinstance(event, PlanReady):
            self.plans.append(event)

    def memories(self) -> Iterable[tuple[float, Memory]]:
        for ready in self.plans:
            assert isinstance(ready.memory, Memory)
            yield ready.at, ready.memory

    def memory(self, at: float) -> Memory:
        (found,) = (memory for when, memory in self.memories() if when == at)
        return found

    def units(self, at: float) -> set[tuple[int, ...]]:
        """Return the jobs of each unit, as decided at an instant."""
        return {tuple(sorted(unit)) for unit in self.memory(at).units}

    def homes(self, at: float) -> dict[str, dict[int, int]]:
        """Return job → servers with devices of it, as decided at an instant."""
        memory = self.memory(at)
        return {
            self.jobs[job].id: dict(home)
            for unit, home in zip(memory.units, memory.homes, strict=True)
            for job in unit
        }

    def leases(self, job: str) -> list[tuple[float, float, int]]:
        """Return start, end and size of every lease of a job, in order."""
        assert self.record.intervals is not None
        number, _, size, start, end = self.record.intervals.columns()
        mine = np.flatnonzero(number == [j.id for j in self.jobs].index(job))
        rows = zip(start[mine].tolist(), end[mine].tolist(), size[mine].tolist(), strict=True)
        return sorted(rows)


@dataclass(frozen=True)
class Begins(Gandiva):
    """Gandiva that finds jobs running where a test has put them."""

    given: tuple[tuple[int, ...], ...] = ()

    def plan(self, snap: Snapshot, memory: Memory) -> tuple[Plan, Memory]:
        if snap.starts_at > 0:
            return super().plan(snap, memory)
        start = [Placement(job, 0, on) for job, on in enumerate(self.given)]
        none = np.zeros(0, dtype=np.int64)
        return Plan(none, Placements.of(start), self.round_s, self.round_s), memory


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
    speeds = flat("VAE", kinds=("p100", "p40"))
    run = Run(jobs, speeds, cluster, Begins(given=((0,), (1,), (2,))))
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
    given = ((0,), (1,), (2,), (4,), (5,), (6,))
    cluster = Cluster.of({"p100": 8}, per_node=4)
    run = Run([*ones, two], flat("VAE"), cluster, Begins(given=given, migration=False))
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
    run = Run(jobs, speeds, cluster, Begins(given=FIGURE_8))
    before = {job: len(home) for job, home in run.homes(120.0).items()}
    assert before == {"J0": 1, "J1": 2, "J2": 2, "J3": 2, "D": 4}
    united = run.homes(240.0)
    assert {job: len(home) for job, home in united.items()} == {f"J{i}": 1 for i in range(4)}
    assert len(run.leases("J0")) == 1  # it was united before, and nobody touches it
    # Apart they run at half their speed (physics), so that moving pays for itself.
    apart = Run(jobs, speeds, cluster, Begins(given=FIGURE_8, migration=False))
    assert (run.record.finished_at[1:4] < 0.75 * apart.record.finished_at[1:4]).all()


def test_suspended_job_moves_to_a_vacated_device_anywhere() -> None:
    """§4.2.1: departures lower the height of the cluster."""
    jobs = [
        *(Job(id=f"long{i}", workload="ResNet-50", total_steps=1e5) for i in range(2)),
        *(Job(id=f"short{i}", workload="ResNet-50", total_steps=1500) for i in range(2)),
        Job(id="late", workload="ResNet-50", total_steps=1e5, arrival_at=30.0),
    ]
    given = ((0,), (1,), (2,), (3,))
    cluster = Cluster.of({"p100": 4}, per_node=2)
    moved = Run(jobs, flat("ResNet-50"), cluster, Begins(given=given, packing=False))
    assert moved.record.finished_at[[0, 1, 4]] == pytest.approx([1e4] * 3, rel=0.03)
    stuck = Begins(given=given, packing=False, migration=False)
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
    run = Run(jobs, flat("ResNet-50"), cluster, Begins(given=((0,), (4,), (8,))))
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
    """Return the same speeds given to other workloads and accelerators."""
    keys = list(speeds.steps_per_s)
    values = list(speeds.steps_per_s.values())
    return SpeedTable(dict(zip(keys, values[7:] + values[:7], strict=True)))


def test_plans_follow_from_measurements_whatever_speeds_are_believed() -> None:
    speeds = SpeedTable(
        {
            SpeedKey(w, g, kind): speed * g * fast
            for w, speed in P40.items()
            for g in (1, 2, 4)
            for kind, fast in (("p40", 1), ("p100", 2))
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
    found: Scenario = scenario(Gandiva())
    jobs = [
        replace(job, utilization=(0.1, 0.5, 0.9)[i % 3], max_gang=4 if i % 5 == 0 else None)
        for i, job in enumerate(found.jobs)
    ]
    record, _ = simulate(
        replace(
            found,
            jobs=jobs,
            mechanism=watched(found.mechanism, jobs),
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
