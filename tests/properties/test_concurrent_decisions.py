"""One mechanism serves several threads: plans, explanations, advice and audits stay the same.

The threads run in a process of their own, for solver state that two of them share ends it by a
segmentation fault. That process is this file run as a script.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from hashlib import sha256
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from fairlead.core import Scheduler, encode_event
from fairlead.insight.advice import advise
from fairlead.insight.audit.audit import audit
from fairlead.insight.explain.explain import explain
from fairlead.mechanisms.factory import realise
from fairlead.model.cluster import Cluster
from fairlead.model.commands import ComputePlan
from fairlead.model.events import Event, PlanReady
from fairlead.model.job import Job, Tenant
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario

POLICIES = (
    "max-min",
    "max-min:packed",
    "finish-time",
    "hierarchical",
    "makespan",
    "oef-cooperative",
)
CLUSTER = Cluster.of({"v100": 4, "p100": 4, "k80": 8}, per_node=2)
TENANTS = (Tenant("a", weight=2.0), Tenant("b"), Tenant("c"))
N_JOBS = 60
N_WORKLOADS = 12
TURNS = {"simulate": 1, "plan": 1, "explain": 2, "advise": 2, "audit": 1}
"""task → how often its thread does it"""
TIMEOUT_S = 120.0

Task = Callable[[Any], Iterator[str]]
"""computes results, as text, with a mechanism"""
Digests = dict[str, list[list[str]]]
"""task → turns → results"""


def speed_table() -> SpeedTable:
    """Return speeds of workloads that no two of gain alike; pairs run at three fifths."""
    rng = np.random.default_rng(12)
    names = [f"w{i}" for i in range(N_WORKLOADS)]
    rows = np.sort(rng.uniform(1.0, 8.0, (N_WORKLOADS, len(CLUSTER.accelerators))))[:, ::-1]
    return SpeedTable(
        {
            SpeedKey(name, gang, kind, partner=partner): float(speed)
            * gang
            * ((partner and 0.6) or 1)
            for name, row in zip(names, rows, strict=True)
            for kind, speed in zip(CLUSTER.accelerators, row, strict=True)
            for gang in (1, 2)
            for partner in (None, *names)
        }
    )


SPEEDS = speed_table()


def jobs() -> list[Job]:
    """Return jobs two thirds of which are there from the start; the others arrive in turn."""
    rng = np.random.default_rng(34)
    return [
        Job(
            id=f"j{i}",
            workload=f"w{i % N_WORKLOADS}",
            tenant="abc"[i % len(TENANTS)],
            gang=2 if i % 5 == 0 else 1,
            weight=2.0 if i % 4 == 0 else 1.0,
            total_steps=int(rng.integers(2_000, 12_000)),
            arrival_at=60.0 * max(i - 2 * N_JOBS // 3, 0),
        )
        for i in range(N_JOBS)
    ]


def simulated(mechanism: Any, on_event: Callable[[Event], None]) -> None:
    """Run all jobs to their end by a scheduler with this mechanism."""
    simulate(
        Scenario(
            cluster=CLUSTER,
            speeds=SPEEDS,
            jobs=jobs(),
            tenants=TENANTS,
            mechanism=mechanism,
            on_event=on_event,
            window=(0, N_JOBS // 2),
        )
    )


def snapshots_of_rounds(policy: str) -> list[Snapshot]:
    """Return the snapshot of every round, taken by a second scheduler told the same events."""
    mechanism: Any = realise(policy)
    twin: Scheduler[Any] = Scheduler(CLUSTER, SPEEDS, mechanism)
    snapshots: list[Snapshot] = []

    def watch(event: Event) -> None:
        commands = twin.handle(event)
        snapshots.extend(c.snapshot for c in commands if isinstance(c, ComputePlan))

    simulated(realise(policy), watch)
    return snapshots


def tasks(snapshots: Sequence[Snapshot]) -> dict[str, Task]:
    """Return a task for each thread; all but the first look at the same snapshots."""
    few = (snapshots[len(snapshots) // 4], snapshots[len(snapshots) // 2])

    def simulate_all(mechanism: Any) -> Iterator[str]:
        plans: list[str] = []
        simulated(
            mechanism,
            lambda event: (
                plans.append(encode_event(event)) if isinstance(event, PlanReady) else None
            ),
        )
        yield from plans

    def plan(mechanism: Any) -> Iterator[str]:
        memory = mechanism.initial()
        for version, snap in enumerate(snapshots, start=1):
            made, memory = mechanism.plan(snap, memory)
            yield encode_event(PlanReady(snap.at, version, made, memory))

    def explain_some(mechanism: Any) -> Iterator[str]:
        for snap in few:
            job = snap.ids[int(snap.job[0])]
            yield json.dumps(explain(snap, mechanism.policy, job).as_dict())

    def advise_all(mechanism: Any) -> Iterator[str]:
        for snap in snapshots[::4]:
            yield json.dumps([asdict(one) for one in advise(snap, mechanism.policy)])

    def audit_once(mechanism: Any) -> Iterator[str]:
        yield json.dumps(audit(few[0], mechanism.policy, solves=8).as_dict())

    return {
        "simulate": simulate_all,
        "plan": plan,
        "explain": explain_some,
        "advise": advise_all,
        "audit": audit_once,
    }


def digests(results: Iterator[str]) -> list[str]:
    return [sha256(result.encode()).hexdigest()[:12] for result in results]


def one_after_another(policy: str) -> Digests:
    """Return the results of every task, each with a mechanism of its own."""
    snapshots = snapshots_of_rounds(policy)
    return {
        name: [digests(task(realise(policy)))] * TURNS[name]
        for name, task in tasks(snapshots).items()
    }


def at_the_same_time(policy: str) -> dict[str, Any]:
    """Return the results of all tasks, each in a thread, with one mechanism for all."""
    mechanism = realise(policy)
    work = tasks(snapshots_of_rounds(policy))
    start = Barrier(len(work))
    failures: list[str] = []

    def run(name: str) -> list[list[str]]:
        start.wait()
        turns: list[list[str]] = []
        for _ in range(TURNS[name]):
            try:
                turns.append(digests(work[name](mechanism)))
            except Exception as error:
                failures.append(f"{name}: {error!r}")
        return turns

    with ThreadPoolExecutor(len(work)) as pool:
        found = dict(zip(work, pool.map(run, work), strict=True))
    return {"failures": failures, "digests": found}


def changed(found: Digests, expected: Digests) -> dict[str, int]:
    """Return task → results that differ, of those with any."""
    counts = {
        name: sum(
            result != wanted
            for turn, wanted_turn in zip(found[name], turns, strict=True)
            for result, wanted in zip(turn, wanted_turn, strict=True)
        )
        for name, turns in expected.items()
    }
    return {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize("policy", POLICIES)
def test_threads_that_share_a_mechanism_get_the_results_of_serial_calls(policy: str) -> None:
    command = [sys.executable, "-X", "faulthandler", __file__, policy]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as child:
        expected = one_after_another(policy)
        output, errors = child.communicate(timeout=TIMEOUT_S)
    assert child.returncode == 0, errors[-3000:]
    report = json.loads(output)
    assert report["failures"] == []
    assert expected["plan"][0] == expected["simulate"][0]
    assert {n: [*map(len, turns)] for n, turns in report["digests"].items()} == {
        n: [*map(len, turns)] for n, turns in expected.items()
    }
    assert changed(report["digests"], expected) == {}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(at_the_same_time(sys.argv[1])))
