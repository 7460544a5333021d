"""Rounds of turns that are taken at once lead to the state of those taken one by one."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.test_compiled import Pure, needs_compiled

from fairlead.compiled import compiled
from fairlead.core import state_bytes
from fairlead.files import read_speeds
from fairlead.mechanisms.factory import create_mechanism
from fairlead.mechanisms.gandiva import turn_slices
from fairlead.mechanisms.gandiva_fair import quiet_quanta
from fairlead.model.cluster import Cluster
from fairlead.model.events import NodeEvent, NodeLost, NodeReturned
from fairlead.model.job import Job
from fairlead.model.tenants.tenant import Tenant
from fairlead.sim import turn_rounds
from fairlead.sim.driver import simulate
from fairlead.sim.record import Record
from fairlead.sim.scenario import Scenario

SPEEDS = read_speeds("gandiva-fair")
WORKLOADS = ("VAE", "SuperResolution", "DCGAN", "GRU")
MECHANISMS = (
    *("gandiva", "gandiva:packing=no", "gandiva:migration=no", "gandiva:packing=no,round-s=17.3"),
    *("gandiva-fair", "gandiva-fair:make-up-s=0", "gandiva-fair:make-up-s=120,trading=no"),
)
COLUMNS = ("device_s", "started_at", "finished_at", "first_steps_at", "preemptions", "migrations")


@st.composite
def _scenarios(draw: st.DrawFn) -> Scenario:
    cluster = Cluster.of({"v100": 2, "k80": draw(st.integers(1, 4))}, per_node=2)
    spacing_s = draw(st.sampled_from([0.0, 60.0, 217.3, 1000.0]))
    utilization = draw(st.sampled_from([None, None, 0.3]))
    jobs = [
        Job(
            id=f"j{i}",
            tenant=draw(st.sampled_from("abc")),
            workload=draw(st.sampled_from(WORKLOADS)),
            total_steps=draw(st.sampled_from([40.0, 3_000.0, 20_001.7, 90_000.3])),
            arrival_at=spacing_s * i,
            weight=draw(st.sampled_from([1.0, 1.0, 1 / 3])),
            utilization=utilization if i == 7 else None,
        )
        for i in range(draw(st.integers(5, 14)))
    ]
    lost = cluster.nodes[-1].id
    events: list[NodeEvent] = []
    if draw(st.booleans()):
        events = [NodeLost(3_003.0, lost), NodeReturned(7_207.0, lost)]
    return Scenario(
        cluster=cluster,
        speeds=SPEEDS,
        jobs=jobs,
        tenants=[Tenant("a", weight=draw(st.sampled_from([1.0, 2.5])))],
        mechanism=create_mechanism(draw(st.sampled_from(MECHANISMS))),
        restore_cost_s=draw(st.sampled_from([0.0, 3.1, 9.7])),  # less than any slice: it ends
        node_events=events,
    )


def _outcome(scenario: Scenario) -> tuple[bytes, list[bytes], int, float]:
    record, scheduler = simulate(scenario)
    assert scheduler is not None
    return state_bytes(scheduler), _columns(record), record.rounds, record.ended_at


def _columns(record: Record) -> list[bytes]:
    return [getattr(record, column).tobytes() for column in COLUMNS]


@needs_compiled
@settings(max_examples=15)
@given(_scenarios())
def test_rounds_taken_at_once_are_those_taken_one_by_one(scenario: Scenario) -> None:
    with Pure(turn_rounds):
        expected = _outcome(scenario)
    assert _outcome(scenario) == expected


def _busy(policy: str) -> Scenario:
    jobs = [
        Job(id=f"j{i}", tenant="ab"[i % 2], workload=WORKLOADS[i % 3], total_steps=30_000.0)
        for i in range(9)
    ]
    cluster = Cluster.of({"v100": 2, "k80": 2}, per_node=2)
    mechanism = create_mechanism(policy)
    return Scenario(cluster=cluster, speeds=SPEEDS, jobs=jobs, mechanism=mechanism)


class _Recorder:
    """Keeps the arguments of the first call of each compiled loop, as they were before it."""

    def __init__(self) -> None:
        self.calls: dict[str, tuple[Any, ...]] = {}
        self.rounds = 0

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            self.calls.setdefault(name, _copied(arguments))
            answer = getattr(compiled, name)(*arguments)
            self.rounds += answer
            return answer

        return call if name.endswith("_rounds") else getattr(compiled, name)


def _copied(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(None if each is None else each.copy() for each in arguments)


FREE, INTS, ACCELERATOR_OF, HOME, BEGIN, DEVICES, SITES = 2, 4, 6, 7, 9, 10, 11
INDICES = INTS, ACCELERATOR_OF, HOME, BEGIN, DEVICES
"""places of arguments, and those whose first entry is an index"""
LOOPS = pytest.mark.parametrize(
    ("policy", "module", "loop"),
    [
        ("gandiva:packing=no", turn_slices, "slice_rounds"),
        ("gandiva-fair", quiet_quanta, "quantum_rounds"),
    ],
)


@needs_compiled
@LOOPS
def test_compiled_loops_take_many_rounds_and_refuse_wrong_arguments(
    policy: str, module: Any, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = _Recorder()
    monkeypatch.setattr(module, "compiled", recorder)
    record, _ = simulate(_busy(policy))
    assert recorder.rounds > record.rounds / 3
    arguments = recorder.calls[loop]
    function = getattr(compiled, loop)
    for i, array in enumerate(arguments):
        if array is None:
            continue
        wrong = [*_copied(arguments)]
        wrong[i] = np.zeros(array.shape, np.float32)
        with pytest.raises((TypeError, ValueError)):
            function(*wrong)
        if i in (FREE, SITES):  # those that are needed may be among the rest
            continue
        wrong[i] = array.reshape(-1)[: array.size // 2].copy()
        with pytest.raises((TypeError, ValueError)):
            function(*wrong)
    with pytest.raises(TypeError):
        function(*arguments[:-1])
    for i in INDICES:
        wrong = [*_copied(arguments)]
        wrong[i].reshape(-1)[0] = 10**9
        with pytest.raises(ValueError, match="fit together"):
            function(*wrong)
    wrong = [*_copied(arguments)]
    wrong[DEVICES][-1] = wrong[DEVICES][0]  # a device cannot be at two places
    with pytest.raises(ValueError, match="fit together"):
        function(*wrong)
    assert function(*_copied(arguments)) >= 0
