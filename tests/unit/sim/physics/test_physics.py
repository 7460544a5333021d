"""Effects of physics on speeds and starts in the virtual cluster."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.cluster import Accelerator, Cluster, Node
from fairlead.model.errors import UsageError
from fairlead.model.job import Job
from fairlead.model.lease import Placement, Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.driver import simulate
from fairlead.sim.physics.effects import (
    EFFECTS,
    ContentionProfile,
    Locality,
    Physics,
    Topology,
    TransitionCosts,
    WorkloadPhysics,
)
from fairlead.sim.physics.gandiva import gandiva_physics
from fairlead.sim.physics.true_speeds import TrueSpeeds
from fairlead.sim.record import Record
from fairlead.sim.scenario import Scenario
from fairlead.testing.mechanisms.scenarios import mixed_gangs

WORKLOADS = ("VGG16", "ResNet-50", "InceptionV3", "DeepSpeech", "LanguageModel", "GNMT", "VAE")
SPEEDS = SpeedTable(
    {
        SpeedKey(w, gang, accelerator): 10.0 * gang * fast
        for w in WORKLOADS
        for gang in (1, 2, 4)
        for accelerator, fast in (("p100", 1.0), ("k80", 0.25))
    }
)
CLUSTER = Cluster(
    tuple(Node(f"n{i}", ("p100",) * 4, rack=f"r{i // 2}") for i in range(3)),
    {"p100": Accelerator("p100", memory_gib=16.0)},
)


def job(workload: str, gang: int = 1, steps: float = 1000.0, **more: Any) -> Job:
    name = f"{workload}-{more.pop('name', 0)}"
    return Job(id=name, workload=workload, gang=gang, total_steps=steps, **more)


def speed(
    on: Sequence[int], workload: str, *, physics: Physics | None = None, **more: Any
) -> float:
    """Return the speed of a job on these devices relative to its best speed."""
    only = job(workload, more.pop("gang", len(on)), **more)
    true_speeds = TrueSpeeds(CLUSTER, SPEEDS, [only], physics or gandiva_physics())
    return true_speeds.speed_with(0, np.array(on), ()) / (10.0 * only.gang)


# -- locality -----------------------------------------------------------------------------------


def test_vgg16_keeps_60_per_cent_across_sockets_and_resnet_100() -> None:
    """Gandiva §3.1, Figure 1: two P100 of one server, one switch per socket."""
    assert speed([0, 1], "VGG16") == pytest.approx(1.0)
    assert speed([0, 2], "VGG16") == pytest.approx(0.6)
    assert speed([0, 2], "ResNet-50") == pytest.approx(1.0)


def test_switches_sockets_nodes_and_racks_have_separate_factors() -> None:
    far = Locality(switches=0.9, sockets=0.8, nodes=0.7, racks=0.6)
    physics = Physics(
        by_workload={"*": WorkloadPhysics(locality=far)}, topology=Topology(per_socket=3)
    )
    pairs = {(0, 1): 1.0, (1, 2): 0.9, (2, 3): 0.8, (3, 4): 0.7, (7, 8): 0.6}
    factors = {pair: speed(pair, "GNMT", physics=physics) for pair in pairs}
    assert factors == pytest.approx(pairs)


def test_measured_spread_speed_replaces_the_factor_of_nodes() -> None:
    table = SpeedTable({**SPEEDS.steps_per_s, SpeedKey("VGG16", 2, "p100", "spread"): 16.0})
    true_speeds = TrueSpeeds(CLUSTER, table, [job("VGG16", 2)], gandiva_physics())
    assert true_speeds.speed_with(0, np.array([0, 4]), ()) == pytest.approx(16.0)


def test_mixed_gang_runs_at_its_slowest_member_with_the_spread_factor() -> None:
    """Hadar Eq. 1b."""
    mixed = Cluster((Node("a", ("p100", "k80")), Node("b", ("p100",))))
    physics = Physics(by_workload={"*": WorkloadPhysics(locality=Locality(nodes=0.8))})
    true_speeds = TrueSpeeds(mixed, SPEEDS, [job("VAE", 2)], physics)
    assert true_speeds.speed_with(0, np.array([0, 1]), ()) == pytest.approx(5.0)
    assert true_speeds.speed_with(0, np.array([1, 2]), ()) == pytest.approx(5.0 * 0.8)
    assert true_speeds.speed_with(0, np.array([0, 2]), ()) == pytest.approx(20.0 * 0.8)


# -- neighbours and partners --------------------------------------------------------------------


@dataclass(frozen=True)
class FixedPlacement:
    """Starts every job on the devices given for its id and preempts none."""

    on: Mapping[str, tuple[int, ...]]
    round_s: float = 50.0

    def initial(self) -> None:
        return None

    def plan(self, snap: Snapshot, memory: None) -> tuple[Plan, None]:
        waiting = [row for row, lease in enumerate(snap.lease.tolist()) if lease < 0]
        numbers = [int(snap.job[row]) for row in waiting]
        start = Placements.of([Placement(n, 0, self.on[snap.ids[n]]) for n in numbers])
        until = snap.starts_at + self.round_s
        return Plan(np.zeros(0, dtype=np.int64), start, until, until), memory


def run(
    *placed: tuple[Job, tuple[int, ...]], physics: Physics | None = None, **more: Any
) -> Record:
    """Return the record of jobs that start on these devices at arrival."""
    jobs = [job for job, _ in placed]
    record, _ = simulate(
        Scenario(
            cluster=CLUSTER,
            speeds=SPEEDS,
            jobs=jobs,
            mechanism=FixedPlacement({job.id: on for job, on in placed}),
            physics=physics or gandiva_physics(),
            **more,
        )
    )
    return record


def test_two_language_models_on_a_switch_lose_19_per_cent_each() -> None:
    """Gandiva §3.2, Figure 3."""
    near = run((job("LanguageModel"), (0,)), (job("LanguageModel", name=1), (1,)))
    assert near.finished_at == pytest.approx([100 / 0.81] * 2)
    apart = run((job("LanguageModel"), (0,)), (job("LanguageModel", name=1), (2,)))
    assert apart.finished_at == pytest.approx([100.0] * 2)


def test_language_model_does_not_slow_resnet_on_the_same_switch() -> None:
    """Gandiva §3.2."""
    record = run((job("LanguageModel"), (0,)), (job("ResNet-50"), (1,)))
    assert record.finished_at[1] == pytest.approx(100.0)


def test_neighbour_slows_a_job_only_while_it_runs() -> None:
    record = run(
        (job("LanguageModel"), (0,)),
        (job("LanguageModel", steps=100.0, name=1, arrival_at=50.0), (1,)),
    )
    together_s = 10.0 / 0.81
    assert record.finished_at[1] == pytest.approx(50.0 + together_s)
    assert record.finished_at[0] == pytest.approx(100.0 + together_s * 0.19)


@pytest.mark.parametrize(
    ("workload", "loss"), [("ResNet-50", 0.47), ("InceptionV3", 0.30), ("DeepSpeech", 0.05)]
)
def test_spread_gangs_that_share_a_network_card_lose_speed_as_in_figure_4(
    workload: str, loss: float
) -> None:
    """Gandiva §3.2, Figure 4."""
    physics = gandiva_physics().without("locality", "costs")
    both = (job(workload, 2), (0, 4)), (job(workload, 2, name=1), (2, 6))
    assert run(*both, physics=physics).finished_at == pytest.approx([50 / (1 - loss)] * 2)
    inside = run(both[0], (both[1][0], (6, 7)), physics=physics)
    assert inside.finished_at == pytest.approx([50.0] * 2)


@pytest.mark.parametrize(("count", "total"), [(1, 1.0), (2, 2.0), (5, 5.0), (8, 419.3 / 81.8)])
def test_packed_vae_jobs_reach_the_total_speed_of_table_1(count: int, total: float) -> None:
    """Gandiva, Table 1: +412 % needs more than five jobs on a device."""
    jobs = [(job("VAE", name=i), (0,)) for i in range(count)]
    record = run(*jobs, physics=gandiva_physics().without("costs"))
    assert record.finished_at == pytest.approx([100 * count / total] * count)


def test_measured_pair_runs_at_its_measured_speed() -> None:
    table = SpeedTable({**SPEEDS.steps_per_s, SpeedKey("VAE", 1, "p100", partner="VAE"): 3.0})
    true_speeds = TrueSpeeds(CLUSTER, table, [job("VAE"), job("VAE", name=1)], gandiva_physics())
    assert true_speeds.speed_with(0, np.array([0]), [1]) == pytest.approx(3.0)


# -- memory, elastic gangs ----------------------------------------------------------------------


def test_jobs_that_exceed_the_memory_do_not_run() -> None:
    two = [job("VAE", memory_gib=9.0), job("VAE", memory_gib=8.0, name=1)]
    true_speeds = TrueSpeeds(CLUSTER, SPEEDS, two, gandiva_physics())
    assert true_speeds.speed_with(0, np.array([0]), ()) == pytest.approx(10.0)
    assert true_speeds.speed_with(0, np.array([0]), [1]) == 0.0
    assert speed([0], "VAE", memory_gib=17.0) == 0.0
    without = gandiva_physics().without("memory")
    assert speed([0], "VAE", memory_gib=17.0, physics=without) == pytest.approx(1.0)


def test_elastic_gang_runs_at_measured_or_scaled_speed() -> None:
    elastic = job("GNMT", 2, min_gang=1, max_gang=4)
    true_speeds = TrueSpeeds(CLUSTER, SPEEDS, [elastic])
    sizes = [Placements.of([Placement(0, 0, tuple(range(n)))]) for n in (1, 2, 3)]
    alone = [true_speeds.speed(units, true_speeds.entry(units))[0] for units in sizes]
    assert alone == pytest.approx([10.0, 20.0, 30.0])
    bent = Physics(by_workload={"*": WorkloadPhysics(scaling=0.5)})
    true_speeds = TrueSpeeds(CLUSTER, SPEEDS, [elastic], bent)
    assert true_speeds.speed_with(0, np.arange(3), ()) == pytest.approx(20.0 * math.sqrt(1.5))


# -- costs --------------------------------------------------------------------------------------

COSTS = TransitionCosts(resume_s=1.0, migrate_s=4.0, preload_s=7.0, checkpoint_s=5.0)


@dataclass(frozen=True)
class Alternating:
    """Gives the only job the next device in every second round, and none in between."""

    rounds: tuple[int, ...]

    def initial(self) -> None:
        return None

    def plan(self, snap: Snapshot, memory: None) -> tuple[Plan, None]:
        turn, pause = divmod(round(snap.starts_at / 10.0), 2)
        here = [] if pause else [Placement(0, 0, (self.rounds[turn % len(self.rounds)],))]
        stop = snap.lease[snap.lease >= 0]
        until = snap.starts_at + 10.0
        return Plan(stop, Placements.of(here), until, until), memory


@pytest.mark.parametrize(
    ("device", "lead_s", "cost"),
    [(0, 0.0, 1.0), (1, 0.0, 3.0), (4, 0.0, 4.0), (1, 4.0, 0.5), (4, 4.0, 0.5), (0, 4.0, 1.0)],
)
def test_each_way_to_restart_delays_completion(device: int, lead_s: float, cost: float) -> None:
    moved = TransitionCosts(resume_s=1.0, move_s=2.0, migrate_s=4.0, hand_over_s=0.5)
    record, _ = simulate(
        Scenario(
            cluster=CLUSTER,
            speeds=SPEEDS,
            jobs=[job("VAE", steps=150.0)],
            mechanism=Alternating((0, device)),
            plan_lead_s=lead_s,
            physics=Physics.with_costs(moved),
        )
    )
    assert record.finished_at == pytest.approx([25.0 + cost])


@dataclass(frozen=True)
class Swapping:
    """Gives two jobs a device each, none in the second round, and then each other's."""

    def initial(self) -> None:
        return None

    def plan(self, snap: Snapshot, memory: None) -> tuple[Plan, None]:
        turn = round(snap.starts_at / 10.0)
        here = [Placement(job, 0, ((job + turn // 2) % 2,)) for job in snap.job.tolist()]
        until = snap.starts_at + (100.0 if turn == 2 else 10.0)
        stop = snap.lease[snap.lease >= 0]
        return Plan(stop, Placements.of([] if turn == 1 else here), until, until), memory


@pytest.mark.parametrize(("parks", "cost"), [(True, 1.0), (False, 3.0)])
def test_parked_jobs_return_to_their_devices(parks: bool, cost: float) -> None:
    record, _ = simulate(
        Scenario(
            cluster=CLUSTER,
            speeds=SPEEDS,
            jobs=[job("VAE", steps=150.0), job("VAE", steps=150.0, name=1)],
            mechanism=Swapping(),
            parks=parks,
            physics=Physics.with_costs(TransitionCosts(resume_s=1.0, move_s=2.0)),
        )
    )
    assert record.finished_at == pytest.approx([25.0 + cost] * 2)


def test_preload_and_checkpoint_costs_delay_completion() -> None:
    record = run((job("VAE"), (0,)), physics=Physics.with_costs(COSTS), checkpoint_s=95.0)
    assert record.finished_at == pytest.approx([7.0 + 100 / 0.95])


@dataclass(frozen=True)
class TakingTurns:
    """Gives one device to two jobs in turn."""

    def initial(self) -> None:
        return None

    def plan(self, snap: Snapshot, memory: None) -> tuple[Plan, None]:
        turn = round(snap.starts_at / 10.0) % 2
        here = [Placement(turn, 0, (0,))] if turn in snap.job else []
        until = snap.starts_at + 10.0
        return Plan(snap.lease[snap.lease >= 0], Placements.of(here), until, until), memory


@pytest.mark.parametrize(
    ("steps", "finished_at", "held_s", "next_at"),
    [
        (50.0, 7.0, 7.0, 7.0),  # well within its round
        (95.0, 11.5, 11.5, 11.5),  # preempted after its last step: it finishes instead
        (110.0, 25.0, 15.0, 12.0),  # its second turn starts when the other has left
    ],
)
def test_devices_are_free_after_the_leave_cost(
    steps: float, finished_at: float, held_s: float, next_at: float
) -> None:
    record, _ = simulate(
        Scenario(
            cluster=CLUSTER,
            speeds=SPEEDS,
            jobs=[job("VAE", steps=steps), job("VAE", steps=1000.0, name=1)],
            mechanism=TakingTurns(),
            physics=Physics.with_costs(TransitionCosts(leave_s=2.0)),
        )
    )
    assert record.finished_at[0] == pytest.approx(finished_at)
    assert record.started_at[1] == pytest.approx(next_at)
    assert record.device_s[0].sum() == pytest.approx(held_s)
    assert record.preemptions[0] == (steps == 110.0)


# -- measurements -------------------------------------------------------------------------------


def test_utilization_counts_busy_devices_not_held_devices() -> None:
    physics = gandiva_physics().without("costs")
    record = run((job("VAE"), (0,)), (job("ResNet-50", 2), (2, 3)), physics=physics)
    assert record.utilization_log is not None
    assert record.utilization_log.mean(0.0, 50.0) == pytest.approx(0.087 + 2 * 0.94)
    busy_s = 0.087 * 100 + 2 * 0.94 * 50
    assert record.utilization_log.mean(0.0, 200.0) == pytest.approx(busy_s / 200)


# -- switches -----------------------------------------------------------------------------------


def test_physics_without_effects_changes_nothing() -> None:
    scenario = mixed_gangs(create_mechanism("tiresias"))
    plain, _ = simulate(scenario)
    off, _ = simulate(replace(scenario, physics=gandiva_physics().without(*EFFECTS)))
    assert np.array_equal(plain.finished_at, off.finished_at)
    assert np.array_equal(plain.device_s, off.device_s)


HARSH = WorkloadPhysics(
    costs=COSTS,
    locality=Locality(nodes=0.5),
    switch=ContentionProfile(sensitivity=0.5),
    network=ContentionProfile(sensitivity=0.5),
)
CASES: dict[str, list[tuple[Job, tuple[int, ...]]]] = {
    "costs": [(job("VAE"), (0,))],
    "locality": [(job("VAE", 2), (0, 4))],
    "switch": [(job("VAE"), (0,)), (job("VAE", name=1), (1,))],
    "network": [(job("VAE", 2), (0, 4)), (job("VAE", 2, name=1), (2, 6))],
}


@pytest.mark.parametrize("effect", CASES)
def test_each_effect_on_time_can_be_switched_off_separately(effect: str) -> None:
    case = CASES[effect]
    on = Physics(by_workload={"*": HARSH}).without(
        *(other for other in EFFECTS if other != effect)
    )
    slow, fast = run(*case, physics=on), run(*case, physics=on.without(effect))
    best = 100.0 / case[0][0].gang
    assert fast.finished_at == pytest.approx([best] * len(case))
    assert (slow.finished_at > best + 1.0).all()


@pytest.mark.parametrize("physics", [None, gandiva_physics().without("packing")])
def test_jobs_whose_pair_is_not_measured_take_turns_without_the_packing_effect(
    physics: Physics | None,
) -> None:
    """As on emulated devices; a pair that the table lists with speed 0 does not run."""
    jobs = [job("VAE"), job("VAE", name=1), job("ResNet-50", name=2)]
    pair = {SpeedKey("VAE", 1, "p100", partner="ResNet-50"): 0.0}
    speeds = SpeedTable({**SPEEDS.steps_per_s, **pair})
    true_speeds = TrueSpeeds(CLUSTER, speeds, jobs, physics)
    device = np.array([0])
    alone = true_speeds.speed_with(0, device, [])
    assert alone > 0.0
    assert true_speeds.speed_with(0, device, [1]) == alone / 2
    assert true_speeds.speed_with(0, device, [1, 2]) == 0.0
    assert true_speeds.speed_with(2, device, [0, 1]) == true_speeds.speed_with(2, device, []) / 3


def test_unknown_effect_is_rejected() -> None:
    with pytest.raises(UsageError, match="effects: unknown: 'gravity'"):
        Physics(effects=frozenset({"gravity"}))
