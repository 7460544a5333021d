"""Conformance suite for mechanisms, including your own.

from fairlead.testing.mechanisms import CHECKS

@pytest.mark.parametrize("check", CHECKS)
def test_mine_conforms(check):
    check(lambda: Mine(round_s=60.0))
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fairlead.core import Scheduler, encode_event, replay, state_bytes
from fairlead.model import events as ev
from fairlead.model.capabilities import capabilities_of
from fairlead.model.cluster import Cluster
from fairlead.model.commands import Command, ComputePlan, Preempt
from fairlead.model.errors import InputError
from fairlead.model.job import Job
from fairlead.sim.driver import simulate
from fairlead.sim.record import Record
from fairlead.sim.scenario import Scenario
from fairlead.testing.contract import require
from fairlead.testing.cpu_time import cpu_s
from fairlead.testing.mechanisms import scenarios
from fairlead.testing.mechanisms.checked import checked_mechanism
from fairlead.testing.mechanisms.scenarios import ACCELERATORS, SPEEDS
from fairlead.testing.mechanisms.slow_leaving_cluster import SlowLeavingCluster

Make = Callable[[], Any]
"""constructs the mechanism under test"""

_MAX_RUN_S = 200_000.0
"""virtual seconds that a scenario may take; each needs less than a tenth"""


def check_plans_are_valid_and_all_jobs_finish(make: Make) -> None:
    """Plans have whole gangs and one unit per device, depend on inputs only, serve all jobs."""
    _, record = _run(scenarios.mixed_gangs(make()))
    require(not np.isnan(record.finished_at).any(), "some jobs never finished")


def check_per_accelerator_gangs_are_honoured_or_rejected(make: Make) -> None:
    """Jobs with per-accelerator gangs get the right number of devices, or are rejected.

    Mechanisms that support such jobs declare ``per_accelerator_gangs``.
    """
    scenario = scenarios.alternatives(make())
    if capabilities_of(scenario.mechanism).per_accelerator_gangs:
        _, record = _run(scenario)
        require(not np.isnan(record.finished_at).any(), "some jobs never finished")
        return
    try:
        simulate(_guarded(scenario))
    except InputError as error:
        require(error.field == "accelerators", f"rejected because of {error.field}")
    else:
        require(False, "jobs with per-accelerator gangs were accepted")


def check_survives_node_changes(make: Make) -> None:
    """Plans stay valid while nodes are lost, return, join and are removed."""
    for scenario_of in (
        scenarios.nodes_come_and_go,
        scenarios.all_nodes_lost,
        scenarios.nodes_join,
    ):
        _, record = _run(scenario_of(make()))
        require(not np.isnan(record.finished_at).any(), "some jobs never finished")


def check_avoids_taken_devices(make: Make) -> None:
    """Plans stay valid while devices are taken and released."""
    _, record = _run(scenarios.devices_taken(make()))
    require(not np.isnan(record.finished_at).any(), "some jobs never finished")


def check_survives_tenant_changes(make: Make) -> None:
    """Plans stay valid while tenants appear, change, cancel jobs and run out of jobs."""
    scenario, record = _run(scenarios.tenants_come_and_go(make()))
    assert scenario.window is not None
    kept = record.finished_at[slice(*scenario.window)]
    require(not np.isnan(kept).any(), "jobs that were not cancelled never finished")


def check_blocked_gang_does_not_block_others(make: Make) -> None:
    """A gang larger than the usable devices waits while others run, and runs in the end."""
    _, record = _run(scenarios.gang_without_its_node(make()))
    gang, others = record.finished_at[0], record.finished_at[1:]
    require(bool(gang > 20_000.0), "the gang finished without its node, or never")
    require(bool((others < 20_000.0).all()), "a gang that cannot run blocked other jobs")


def check_no_job_starves(make: Make) -> None:
    """Large and long jobs finish under a stream of short ones, if the mechanism declares so.

    Mechanisms without ``starvation_free`` are exempt.
    """
    mechanism = make()
    if not capabilities_of(mechanism).starvation_free:
        return
    scenario, record = _run(scenarios.endless_small_jobs(mechanism))
    last_arrival = scenario.jobs[-1].arrival_at
    for i, job in enumerate(scenario.jobs):
        if job.id in ("large", "long"):
            done = bool(record.finished_at[i] < last_arrival)
            require(done, f"the {job.id} job did not finish during the stream of short jobs")


def check_same_scenario_gives_the_same_run(make: Make) -> None:
    """Two equal mechanisms make equal decisions."""
    first, _ = simulate(_guarded(scenarios.nodes_come_and_go(make())))
    second, _ = simulate(_guarded(scenarios.nodes_come_and_go(make())))
    same = np.array_equal(first.finished_at, second.finished_at)
    require(same and np.array_equal(first.device_s, second.device_s), "two runs differ")


def check_replaying_the_log_gives_the_same_state(make: Make) -> None:
    """Replaying the log without the mechanism gives the same state."""
    for scenario in (scenarios.nodes_come_and_go(make()), scenarios.nodes_join(make())):
        log: list[str] = []

        def append(event: ev.Event, log: list[str] = log) -> None:
            log.append(encode_event(event))

        _, after = simulate(replace(_guarded(scenario), on_event=append))
        require(after is not None, "a fluid mechanism has no state to replay")
        assert after is not None
        fresh: Scheduler[Any] = Scheduler(scenario.cluster, SPEEDS, make())
        require(
            state_bytes(replay(fresh, log)) == state_bytes(after), "replay gave a different state"
        )


def check_plans_while_jobs_are_still_leaving(make: Make) -> None:
    """Plans stay valid when jobs take more than a round to leave."""
    for plan_lead_s in (0.0, 10.0):
        _run_slowly(make, plan_lead_s)


def _run_slowly(make: Make, plan_lead_s: float) -> None:
    scenario = scenarios.mixed_gangs(make())
    jobs = [replace(job, total_steps=1e9) for job in scenario.jobs]
    mechanism = checked_mechanism(scenario.mechanism, jobs)
    scheduler: Scheduler[Any] = Scheduler(
        scenario.cluster, SPEEDS, mechanism, plan_lead_s=plan_lead_s
    )
    cluster = SlowLeavingCluster(scheduler, mechanism)
    cluster.submit(jobs[0], 0.0)
    for turn, job in enumerate(jobs[1:] + [None] * 90):
        at = cluster.next_at
        require(at < math.inf, "no wake-up although jobs wait")
        cluster.wake()
        if job is not None:
            cluster.submit(job, at)
        cluster.finish_leaving(at, fraction=(0.0, 0.0, 0.5, 1.0)[turn % 4])
    require(cluster.launches >= len(scenario.cluster.node_of) // 2, "too few jobs ran")


CHECKS = (
    check_plans_are_valid_and_all_jobs_finish,
    check_per_accelerator_gangs_are_honoured_or_rejected,
    check_survives_node_changes,
    check_avoids_taken_devices,
    check_survives_tenant_changes,
    check_blocked_gang_does_not_block_others,
    check_no_job_starves,
    check_same_scenario_gives_the_same_run,
    check_replaying_the_log_gives_the_same_state,
    check_plans_while_jobs_are_still_leaving,
)


def decision_s(make: Make, *, jobs: int = 1000, devices: int = 500, decisions: int = 4) -> float:
    """Return the CPU seconds of the slowest of the first decisions on a large full cluster.

    Between two decisions a few jobs finish and as many arrive.
    """
    mechanism = make()
    share = devices // len(ACCELERATORS)
    counts = {
        name: share + (devices % len(ACCELERATORS)) * (name == ACCELERATORS[0])
        for name in ACCELERATORS
    }
    scheduler: Scheduler[Any] = Scheduler(Cluster.of(counts, per_node=4), SPEEDS, mechanism)
    for number in range(jobs):
        scheduler.handle(ev.JobSubmitted(0.0, _job(number)))
    at, slowest = 0.0, 0.0
    for _ in range(decisions):
        request = _performed(scheduler, scheduler.handle(ev.PlanDue(at)), at)
        assert request is not None
        decide = partial(mechanism.plan, request.snapshot, request.memory)
        (plan, memory), took_s = cpu_s(decide, tries=2)
        slowest = max(slowest, took_s)
        _performed(
            scheduler, scheduler.handle(ev.PlanReady(at, request.version, plan, memory)), at
        )
        at = plan.wake_at
        running = scheduler.leases.lease[scheduler.leases.open]
        made = np.linspace(100.0, 40_000.0, len(running))
        scheduler.handle(ev.Progress(at, running, made))
        ended = ev.LeasesEnded(at, running[:5], made[:5], "finished")
        _performed(scheduler, scheduler.handle(ended), at)
        for number in range(len(scheduler.jobs), len(scheduler.jobs) + 5):
            _performed(scheduler, scheduler.handle(ev.JobSubmitted(at, _job(number))), at)
    return slowest


def _job(number: int) -> Job:
    return Job(
        id=f"j{number}",
        workload=("big", "small", "cnn")[number % 3],
        gang=(1, 1, 1, 1, 2, 4)[number % 6],
        total_steps=50_000 + 7919 * number % 40_009,
        tenant=f"t{number % 10}",
    )


def _performed(
    scheduler: Scheduler[Any], commands: list[Command], at: float
) -> ComputePlan | None:
    """Execute commands at once, as if preempted jobs left immediately."""
    request = None
    for command in commands:
        if isinstance(command, ComputePlan):
            request = command
        elif isinstance(command, Preempt):
            steps = np.ones(len(command.lease))
            left = ev.LeasesEnded(at, command.lease, steps, "left")
            _performed(scheduler, scheduler.handle(left), at)
    return request


def _run(scenario: Scenario) -> tuple[Scenario, Record]:
    """Run a scenario with a checked mechanism."""
    checked = replace(scenario, mechanism=checked_mechanism(scenario.mechanism, scenario.jobs))
    record, _ = simulate(_guarded(checked))
    return scenario, record


def _guarded(scenario: Scenario) -> Scenario:
    """Return the scenario with a time limit, in case a job never runs."""

    def in_time(event: ev.Event) -> None:
        require(event.at < _MAX_RUN_S, f"jobs still wait after {_MAX_RUN_S:g} s")

    return replace(scenario, on_event=in_time)
