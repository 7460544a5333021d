"""Threads that share one mechanism get the plans, explanations, advice and audits of serial calls.

The threads run in a subprocess, which executes this file as a script: solver state shared between
threads ends a process by a segmentation fault.
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
from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.cluster import Cluster
from fairlead.model.commands import ComputePlan
from fairlead.model.events import Event, PlanReady
from fairlead.model.job import Job
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.model.tenants.tenant import Tenant
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
TIMEOUT_S = 300.0

Task = Callable[[Any], Iterator[str]]
"""computes results, as text, with a mechanism"""
Digests = dict[str, list[list[str]]]
"""task → turns → results"""


def speed_table() -> SpeedTable:
    """Return random speeds; a job beside a partner keeps three fifths of its speed."""
    rng = np.random.default_rng(12)
    names = [f"w{i}" for i in range(N_WORKLOADS)]
    accelerators = CLUSTER.accelerators
    alone = {name: np.sort(rng.uniform(1.0, 8.0, len(accelerators)))[::-1] for name in names}
    return SpeedTable(
        {
            SpeedKey(name, gang, accelerator, partner=partner): gang
            * speed
            * (0.6 if partner else 1.0)
            for name in names
            for accelerator, speed in zip(accelerators, alone[name].tolist(), strict=True)
            for gang in (1, 2)
            for partner in (None, *names)
        }
    )


SPEEDS = speed_table()


def jobs() -> list[Job]:
    """Return 60 jobs: two thirds arrive at 0 s, the others one a minute."""
    rng = np.random.default_rng(34)
    return [
        Job(
            id=f"j{i}",
            workload=f"w{i % N_WORKLOADS}",
            tenant="abc"[i % len(TENANTS)],
            gang=2 if i % 5 == 0 else 1,
            weight=2.0 if i % 4 == 0 else 1.0,
            total_steps=int(rng.integers(1_000, 6_000)),
            arrival_at=60.0 * max(i - 2 * N_JOBS // 3, 0),
        )
        for i in range(N_JOBS)
    ]


def simulated_plans(mechanism: Any, watch: Callable[[Event], object] = bool) -> list[str]:
    """Return the plans that a scheduler asks for until the first third of the jobs is done."""
    plans: list[str] = []

    def note(event: Event) -> None:
        watch(event)
        if isinstance(event, PlanReady):
            plans.append(encode_event(event))

    simulate(
        Scenario(
            cluster=CLUSTER,
            speeds=SPEEDS,
            jobs=jobs(),
            tenants=TENANTS,
            mechanism=mechanism,
            on_event=note,
            window=(0, N_JOBS // 3),
        )
    )
    return plans


def rounds(policy: str) -> tuple[list[Snapshot], list[str]]:
    """Return the snapshot and the plan of every round.

    A second scheduler receives the same events and takes the snapshots.
    """
    mechanism: Any = create_mechanism(policy)
    twin: Scheduler[Any] = Scheduler(CLUSTER, SPEEDS, mechanism)
    snapshots: list[Snapshot] = []

    def watch(event: Event) -> None:
        commands = twin.handle(event)
        snapshots.extend(c.snapshot for c in commands if isinstance(c, ComputePlan))

    plans = simulated_plans(create_mechanism(policy), watch)
    return snapshots, plans


def tasks(snapshots: Sequence[Snapshot]) -> dict[str, Task]:
    """Return the tasks by name; all but ``simulate`` read the same snapshots."""
    few = (snapshots[len(snapshots) // 4], snapshots[len(snapshots) // 2])

    def simulate_rounds(mechanism: Any) -> Iterator[str]:
        yield from simulated_plans(mechanism)

    def plan(mechanism: Any) -> Iterator[str]:
        memory = mechanism.initial()
        for version, snap in enumerate(snapshots, start=1):
            decision, memory = mechanism.plan(snap, memory)
            yield encode_event(PlanReady(snap.at, version, decision, memory))

    def explain_jobs(mechanism: Any) -> Iterator[str]:
        for snap in few:
            job = snap.ids[int(snap.job[0])]
            yield json.dumps(explain(snap, mechanism.policy, job).as_dict())

    def advise_on_rounds(mechanism: Any) -> Iterator[str]:
        for snap in snapshots[::4]:
            yield json.dumps([asdict(one) for one in advise(snap, mechanism.policy)])

    def audit_round(mechanism: Any) -> Iterator[str]:
        yield json.dumps(audit(few[0], mechanism.policy, solves=8).as_dict())

    return {
        "simulate": simulate_rounds,
        "plan": plan,
        "explain": explain_jobs,
        "advise": advise_on_rounds,
        "audit": audit_round,
    }


def digests(results: Iterator[str]) -> list[str]:
    return [sha256(result.encode()).hexdigest()[:12] for result in results]


def serial_digests(policy: str) -> Digests:
    """Run the tasks one after another, each with a new mechanism."""
    snapshots, plans = rounds(policy)
    work = tasks(snapshots)
    work["simulate"] = lambda _: iter(plans)
    return {
        name: [digests(task(create_mechanism(policy)))] * TURNS[name]
        for name, task in work.items()
    }


def concurrent_report(policy: str) -> dict[str, Any]:
    """Run each task in a thread of its own, all with one mechanism."""
    mechanism = create_mechanism(policy)
    work = tasks(rounds(policy)[0])
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
        results = dict(zip(work, pool.map(run, work), strict=True))
    return {"failures": failures, "digests": results}


def counts(results: Digests) -> dict[str, list[int]]:
    """Return task → turns → number of results."""
    return {name: [len(turn) for turn in turns] for name, turns in results.items()}


def changed(results: Digests, expected: Digests) -> dict[str, int]:
    """Return task → number of results that differ, without tasks that have none."""
    differ = {
        name: int(np.count_nonzero(np.array(turns) != np.array(expected[name])))
        for name, turns in results.items()
    }
    return {name: number for name, number in differ.items() if number}


@pytest.mark.parametrize("policy", POLICIES)
def test_threads_that_share_a_mechanism_get_the_results_of_serial_calls(policy: str) -> None:
    command = [sys.executable, "-X", "faulthandler", __file__, policy]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as child:
        try:
            expected = serial_digests(policy)
            output, errors = child.communicate(timeout=TIMEOUT_S)
        finally:
            child.kill()
    assert child.returncode == 0, errors[-3000:]
    report = json.loads(output)
    assert report["failures"] == []
    assert counts(report["digests"]) == counts(expected)
    assert changed(report["digests"], expected) == {}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(concurrent_report(sys.argv[1])))
