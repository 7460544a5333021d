"""What physics does to speeds and starts in the virtual cluster, effect by effect."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlead.mechanisms.factory import realise
from fairlead.model.cluster import Accelerator, Cluster, Node
from fairlead.model.errors import InputError, UsageError
from fairlead.model.job import Job
from fairlead.model.lease import Placement, Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.driver import simulate
from fairlead.sim.physics.effects import (
    EFFECTS,
    Contention,
    Costs,
    Locality,
    Physics,
    Topology,
    WorkloadPhysics,
)
from fairlead.sim.physics.gandiva import gandiva_physics
from fairlead.sim.physics.reader import read_physics
from fairlead.sim.physics.true_speeds import Truth
from fairlead.sim.record import Record
from fairlead.sim.scenario import Scenario
from fairlead.testing.mechanisms.scenarios import mixed_gangs

WORKLOADS = ("VGG16", "ResNet-50", "InceptionV3", "DeepSpeech", "LanguageModel", "GNMT", "VAE")
SPEEDS = SpeedTable(
    {
        SpeedKey(w, gang, kind): 10.0 * gang * fast
        for w in WORKLOADS
        for gang in (1, 2, 4)
        for kind, fast in (("p100", 1.0), ("k80", 0.25))
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
    """Return the speed of a job on these devices over that of its gang at best."""
    mine = job(workload, more.pop("gang", len(on)), **more)
    truth = Truth(CLUSTER, SPEEDS, [mine], physics or gandiva_physics())
    return truth.speed_with(0, np.array(on), ()) / (10.0 * mine.gang)


# -- locality -----------------------------------------------------------------------------------


def test_vgg16_keeps_60_per_cent_across_sockets_and_resnet_all() -> None:
    """Gandiva §3.1, Figure 1: two P100 of one server; here each socket has one switch."""
    assert speed([0, 1], "VGG16") == pytest.approx(1.0)
    assert speed([0, 2], "VGG16") == pytest.approx(0.6)
    assert speed([0, 2], "ResNet-50") == pytest.approx(1.0)


def test_switches_sockets_nodes_and_racks_each_have_their_factor() -> None:
    far = Locality(switches=0.9, sockets=0.8, nodes=0.7, racks=0.6)
    physics = Physics(
        natures={"*": WorkloadPhysics(locality=far)}, topology=Topology(per_socket=3)
    )
    pairs = {(0, 1): 1.0, (1, 2): 0.9, (2, 3): 0.8, (3, 4): 0.7, (7, 8): 0.6}
    found = {pair: speed(pair, "GNMT", physics=physics) for pair in pairs}
    assert found == pytest.approx(pairs)


def test_measured_spread_speed_replaces_the_factor_of_nodes() -> None:
    table = SpeedTable({**SPEEDS.steps_per_s, SpeedKey("VGG16", 2, "p100", "spread"): 16.0})
    truth = Truth(CLUSTER, table, [job("VGG16", 2)], gandiva_physics())
    assert truth.speed_with(0, np.array([0, 4]), ()) == pytest.approx(16.0)


def test_mixed_gang_runs_at_its_slowest_member_and_pays_for_being_spread() -> None:
    """Hadar Eq. 1b."""
    mixed = Cluster((Node("a", ("p100", "k80")), Node("b", ("p100",))))
    physics = Physics(natures={"*": WorkloadPhysics(locality=Locality(nodes=0.8))})
    truth = Truth(mixed, SPEEDS, [job("VAE", 2)], physics)
    assert truth.speed_with(0, np.array([0, 1]), ()) == pytest.approx(5.0)
    assert truth.speed_with(0, np.array([1, 2]), ()) == pytest.approx(5.0 * 0.8)
    assert truth.speed_with(0, np.array([0, 2]), ()) == pytest.approx(20.0 * 0.8)


# -- neighbours and partners --------------------------------------------------------------------


@dataclass(frozen=True)
class Puts:
    """Starts every job on the devices given for its id, as it comes, and stops nobody."""

    on: Mapping[str, tuple[int, ...]]
    round_s: float = 50.0

    def initial(self) -> None:
        return None

    def plan(self, snap: Snapshot, memory: None) -> tuple[Plan, None]:
        waits = [row for row, lease in enumerate(snap.lease.tolist()) if lease < 0]
        numbers = [int(snap.job[row]) for row in waits]
        start = Placements.of([Placement(n, 0, self.on[snap.ids[n]]) for n in numbers])
        until = snap.starts_at + self.round_s
        return Plan(np.zeros(0, dtype=np.int64), start, until, until), memory


def run(
    *placed: tuple[Job, tuple[int, ...]], physics: Physics | None = None, **more: Any
) -> Record:
    """Return what became of jobs that were started on these devices when they came."""
    jobs = [job for job, _ in placed]
    record, _ = simulate(
        Scenario(
            cluster=CLUSTER,
            speeds=SPEEDS,
            jobs=jobs,
            mechanism=Puts({job.id: on for job, on in placed}),
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


def test_resnet_does_not_suffer_from_a_language_model_beside_it() -> None:
    """Gandiva §3.2."""
    record = run((job("LanguageModel"), (0,)), (job("ResNet-50"), (1,)))
    assert record.finished_at[1] == pytest.approx(100.0)


def test_neighbour_slows_only_while_it_is_there() -> None:
    record = run(
        (job("LanguageModel"), (0,)),
        (job("LanguageModel", steps=100.0, name=1, arrival_at=50.0), (1,)),
    )
    beside = 10.0 / 0.81
    assert record.finished_at[1] == pytest.approx(50.0 + beside)
    assert record.finished_at[0] == pytest.approx(100.0 + beside * 0.19)


@pytest.mark.parametrize(
    ("workload", "lost"), [("ResNet-50", 0.47), ("InceptionV3", 0.30), ("DeepSpeech", 0.05)]
)
def test_spread_gangs_on_one_network_card_lose_what_figure_4_says(
    workload: str, lost: float
) -> None:
    """Gandiva §3.2, Figure 4."""
    physics = gandiva_physics().without("locality", "costs")
    both = (job(workload, 2), (0, 4)), (job(workload, 2, name=1), (2, 6))
    assert run(*both, physics=physics).finished_at == pytest.approx([50 / (1 - lost)] * 2)
    inside = run(both[0], (both[1][0], (6, 7)), physics=physics)
    assert inside.finished_at == pytest.approx([50.0] * 2)


@pytest.mark.parametrize(("count", "total"), [(1, 1.0), (2, 2.0), (5, 5.0), (8, 419.3 / 81.8)])
def test_packed_vae_jobs_reach_table_1_together(count: int, total: float) -> None:
    """Gandiva, Table 1: +412 % needs more than five jobs on a device."""
    jobs = [(job("VAE", name=i), (0,)) for i in range(count)]
    record = run(*jobs, physics=gandiva_physics().without("costs"))
    assert record.finished_at == pytest.approx([100 * count / total] * count)


def test_pair_that_the_table_has_measured_runs_as_measured() -> None:
    table = SpeedTable({**SPEEDS.steps_per_s, SpeedKey("VAE", 1, "p100", partner="VAE"): 3.0})
    truth = Truth(CLUSTER, table, [job("VAE"), job("VAE", name=1)], gandiva_physics())
    assert truth.speed_with(0, np.array([0]), [1]) == pytest.approx(3.0)


# -- memory, elastic gangs ----------------------------------------------------------------------


def test_memory_forbids_an_accelerator_and_a_pair() -> None:
    two = [job("VAE", memory_gib=9.0), job("VAE", memory_gib=8.0, name=1)]
    truth = Truth(CLUSTER, SPEEDS, two, gandiva_physics())
    assert truth.speed_with(0, np.array([0]), ()) == pytest.approx(10.0)
    assert truth.speed_with(0, np.array([0]), [1]) == 0.0
    assert speed([0], "VAE", memory_gib=17.0) == 0.0
    without = gandiva_physics().without("memory")
    assert speed([0], "VAE", memory_gib=17.0, physics=without) == pytest.approx(1.0)


def test_elastic_gang_runs_as_measured_at_its_size_or_is_scaled_from_its_own() -> None:
    elastic = job("GNMT", 2, min_gang=1, max_gang=4)
    truth = Truth(CLUSTER, SPEEDS, [elastic])
    sizes = [Placements.of([Placement(0, 0, tuple(range(n)))]) for n in (1, 2, 3)]
    alone = [truth.speed(units, truth.entry(units))[0] for units in sizes]
    assert alone == pytest.approx([10.0, 20.0, 30.0])
    bent = Physics(natures={"*": WorkloadPhysics(scaling=0.5)})
    truth = Truth(CLUSTER, SPEEDS, [elastic], bent)
    assert truth.speed_with(0, np.arange(3), ()) == pytest.approx(20.0 * math.sqrt(1.5))


# -- costs --------------------------------------------------------------------------------------

COSTS = Costs(resume_s=1.0, migrate_s=4.0, preload_s=7.0, checkpoint_s=5.0)


@dataclass(frozen=True)
class Moves:
    """Gives the only job the devices of each round in turn, with a pause of a round between."""

    rounds: tuple[int, ...]

    def initial(self) -> None:
        return None

    def plan(self, snap: Snapshot, memory: None) -> tuple[Plan, None]:
        turn, pause = divmod(round(snap.starts_at / 10.0), 2)
        here = [] if pause else [Placement(0, 0, (self.rounds[turn % len(self.rounds)],))]
        stop = snap.lease[snap.lease >= 0]
        until = snap.starts_at + 10.0
        return Plan(stop, Placements.of(here), until, until), memory


@pytest.mark.parametrize(("device", "cost"), [(0, 1.0), (1, 1.0), (4, 4.0)])
def test_resume_and_migration_cost_what_they_cost(device: int, cost: float) -> None:
    costs = replace(COSTS, preload_s=0.0, checkpoint_s=0.0)
    record, _ = simulate(
        Scenario(
            cluster=CLUSTER,
            speeds=SPEEDS,
            jobs=[job("VAE", steps=150.0)],
            mechanism=Moves((0, device)),
            physics=Physics(natures={"*": WorkloadPhysics(costs=costs)}),
        )
    )
    assert record.finished_at == pytest.approx([25.0 + cost])


def test_first_start_preloads_and_checkpoints_take_their_time() -> None:
    physics = Physics(natures={"*": WorkloadPhysics(costs=COSTS)})
    record = run((job("VAE"), (0,)), physics=physics, checkpoint_s=95.0)
    assert record.finished_at == pytest.approx([7.0 + 100 / 0.95])


@dataclass(frozen=True)
class Turns:
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
        (95.0, 11.5, 11.5, 11.5),  # told to leave with its last step made: it finishes instead
        (110.0, 25.0, 15.0, 12.0),  # its second turn begins when the other has left
    ],
)
def test_devices_are_free_when_whoever_leaves_has_left(
    steps: float, finished_at: float, held_s: float, next_at: float
) -> None:
    record, _ = simulate(
        Scenario(
            cluster=CLUSTER,
            speeds=SPEEDS,
            jobs=[job("VAE", steps=steps), job("VAE", steps=1000.0, name=1)],
            mechanism=Turns(),
            physics=Physics(natures={"*": WorkloadPhysics(costs=Costs(leave_s=2.0))}),
        )
    )
    assert record.finished_at[0] == pytest.approx(finished_at)
    assert record.started_at[1] == pytest.approx(next_at)
    assert record.device_s[0].sum() == pytest.approx(held_s)
    assert record.preemptions[0] == (steps == 110.0)


# -- what is measured ---------------------------------------------------------------------------


def test_use_counts_how_busy_devices_are_not_how_many_are_held() -> None:
    physics = gandiva_physics().without("costs")
    record = run((job("VAE"), (0,)), (job("ResNet-50", 2), (2, 3)), physics=physics)
    assert record.use is not None
    assert record.use.mean(0.0, 50.0) == pytest.approx(0.087 + 2 * 0.94)
    assert record.use.mean(0.0, 200.0) == pytest.approx((0.087 * 100 + 2 * 0.94 * 50) / 200)


# -- switches -----------------------------------------------------------------------------------


def test_physics_with_every_effect_off_changes_nothing() -> None:
    scenario = mixed_gangs(realise("tiresias"))
    plain, _ = simulate(scenario)
    off, _ = simulate(replace(scenario, physics=gandiva_physics().without(*EFFECTS)))
    assert np.array_equal(plain.finished_at, off.finished_at)
    assert np.array_equal(plain.device_s, off.device_s)


HARSH = WorkloadPhysics(
    costs=COSTS,
    locality=Locality(nodes=0.5),
    switch=Contention(sensitivity=0.5),
    network=Contention(sensitivity=0.5),
)
CASES: dict[str, list[tuple[Job, tuple[int, ...]]]] = {
    "costs": [(job("VAE"), (0,))],
    "locality": [(job("VAE", 2), (0, 4))],
    "switch": [(job("VAE"), (0,)), (job("VAE", name=1), (1,))],
    "network": [(job("VAE", 2), (0, 4)), (job("VAE", 2, name=1), (2, 6))],
}


@pytest.mark.parametrize("effect", CASES)
def test_every_effect_on_time_can_be_switched_off_alone(effect: str) -> None:
    case = CASES[effect]
    on = Physics(natures={"*": HARSH}).without(*(other for other in EFFECTS if other != effect))
    slow, fast = run(*case, physics=on), run(*case, physics=on.without(effect))
    best = 100.0 / case[0][0].gang
    assert fast.finished_at == pytest.approx([best] * len(case))
    assert (slow.finished_at > best + 1.0).all()


def test_without_the_law_of_packing_a_pair_not_measured_does_not_run() -> None:
    physics = gandiva_physics().without("packing")
    truth = Truth(CLUSTER, SPEEDS, [job("VAE"), job("VAE", name=1)], physics)
    assert truth.speed_with(0, np.array([0]), [1]) == 0.0


def test_unknown_effect_is_refused() -> None:
    with pytest.raises(UsageError, match="no effect is called 'gravity'"):
        Physics(effects=frozenset({"gravity"}))


# -- files --------------------------------------------------------------------------------------


def test_file_changes_what_it_names_and_keeps_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        "base: gandiva\neffects: [costs, locality]\ntopology: {per_socket: 4}\n"
        "workloads:\n  '*': {costs: {resume_s: 2}}\n  VGG16: {locality: {nodes: 0.3}}\n"
    )
    physics = read_physics(str(path))
    assert physics is not None
    assert physics.effects == {"costs", "locality"}
    assert physics.topology == Topology(per_switch=2, per_socket=4)
    assert physics.of("anything").costs.resume_s == 2.0
    assert physics.of("VGG16").locality == Locality(switches=0.8, sockets=0.6, nodes=0.3)
    assert physics.of("LanguageModel").switch.sensitivity == 0.19


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("effects: [gravity]", "gravity"),
        ("base: newton", "newton"),
        ("workloads: {VAE: {packed: 0}}", "workloads.VAE.packed"),
        ("workloads: {VAE: {locality: {nodes: 1.5}}}", "workloads.VAE.locality.nodes"),
        ("workloads: {VAE: {locality: {moon: 1}}}", "moon"),
        ("topology: {per_switch: 0}", "per_switch"),
        ("effects: costs", "not a list"),
        ("a: [", "not YAML"),
    ],
)
def test_file_with_a_fault_is_refused_and_the_place_named(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_physics(str(path))
    assert said in str(caught.value)


def test_names_stand_for_no_physics_and_for_gandivas() -> None:
    assert read_physics("none") is None
    assert read_physics("gandiva") is gandiva_physics()
