"""The conformance suite of mechanisms: what each must keep, also one of your own.

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
from fairlead.testing.mechanisms.checked import watched
from fairlead.testing.mechanisms.scenarios import KINDS, SPEEDS
from fairlead.testing.mechanisms.slow_cluster import SlowLeavingCluster

Make = Callable[[], Any]
"""constructs the mechanism under test"""

_LONGEST_S = 200_000.0
"""of virtual time that a scenario may take; each needs less than a tenth"""


def check_plans_can_be_carried_out_and_all_jobs_finish(make: Make) -> None:
    """Whole gangs, one unit a device, answers that follow from the inputs, nobody left behind."""
    _, record = _run(scenarios.mixed_gangs(make()))
    require(not np.isnan(record.finished_at).any(), "some jobs never finished")


def check_counts_devices_by_accelerator_or_refuses(make: Make) -> None:
    """Jobs that need other numbers of devices elsewhere get these, if the mechanism takes such.

    It says so by ``takes_alternatives = True``; otherwise they are refused when they come.
    """
    scenario = scenarios.alternatives(make())
    if getattr(scenario.mechanism, "takes_alternatives", False):
        _, record = _run(scenario)
        require(not np.isnan(record.finished_at).any(), "some jobs never finished")
        return
    try:
        simulate(_guarded(scenario))
    except InputError as error:
        require(error.field == "accelerators", f"refused for its {error.field}")
    else:
        require(False, "jobs with numbers for accelerators were taken in")


def check_survives_loss_return_and_arrival_of_nodes(make: Make) -> None:
    """The same while nodes are lost, all of them for a while, return, join and are removed."""
    for situation in (scenarios.nodes_come_and_go, scenarios.all_nodes_away, scenarios.nodes_join):
        _, record = _run(situation(make()))
        require(not np.isnan(record.finished_at).any(), "some jobs never finished")


def check_leaves_alone_devices_that_others_take(make: Make) -> None:
    """The same while others take devices and give them back."""
    _, record = _run(scenarios.others_take_devices(make()))
    require(not np.isnan(record.finished_at).any(), "some jobs never finished")


def check_survives_tenants_that_come_and_go(make: Make) -> None:
    """The same while tenants appear, change, take jobs back and have none left."""
    scenario, record = _run(scenarios.tenants_come_and_go(make()))
    assert scenario.window is not None
    kept = record.finished_at[slice(*scenario.window)]
    require(not np.isnan(kept).any(), "jobs that were not cancelled never finished")


def check_gang_that_cannot_run_blocks_nobody(make: Make) -> None:
    """A gang larger than what is up waits; others run meanwhile, and it runs in the end."""
    _, record = _run(scenarios.gang_without_its_node(make()))
    gang, others = record.finished_at[0], record.finished_at[1:]
    require(bool(gang > 20_000.0), "the gang finished without its node, or never")
    require(bool((others < 20_000.0).all()), "a gang that cannot run kept others from running")


def check_nobody_starves(make: Make) -> None:
    """Large and long jobs finish under a stream of short ones, if the mechanism promises it.

    It does so by ``starves_nobody = True``; without, there is nothing to check.
    """
    mechanism = make()
    if not getattr(mechanism, "starves_nobody", False):
        return
    scenario, record = _run(scenarios.endless_small_jobs(mechanism))
    last_arrival = scenario.jobs[-1].arrival_at
    for i, job in enumerate(scenario.jobs):
        if job.id in ("large", "long"):
            done = bool(record.finished_at[i] < last_arrival)
            require(done, f"the {job.id} job did not finish while short ones kept coming")


def check_same_scenario_gives_the_same_run(make: Make) -> None:
    """Two mechanisms made alike decide alike."""
    first, _ = simulate(_guarded(scenarios.nodes_come_and_go(make())))
    second, _ = simulate(_guarded(scenarios.nodes_come_and_go(make())))
    same = np.array_equal(first.finished_at, second.finished_at)
    require(same and np.array_equal(first.device_s, second.device_s), "two runs differ")


def check_replaying_the_log_gives_the_same_state(make: Make) -> None:
    """The log alone, without asking the mechanism again, leads to the same state."""
    for scenario in (scenarios.nodes_come_and_go(make()), scenarios.nodes_join(make())):
        log: list[str] = []

        def note(event: ev.Event, log: list[str] = log) -> None:
            log.append(encode_event(event))

        _, after = simulate(replace(_guarded(scenario), on_event=note))
        require(after is not None, "a fluid mechanism has no state to replay")
        assert after is not None
        fresh: Scheduler[Any] = Scheduler(scenario.cluster, SPEEDS, make())
        require(state_bytes(replay(fresh, log)) == state_bytes(after), "replay gave another state")


def check_plans_while_jobs_are_still_leaving(make: Make) -> None:
    """Jobs that take more than a round to leave upset neither the mechanism nor its plans."""
    for plan_lead_s in (0.0, 10.0):
        _run_slowly(make, plan_lead_s)


def _run_slowly(make: Make, plan_lead_s: float) -> None:
    scenario = scenarios.mixed_gangs(make())
    jobs = [replace(job, total_steps=1e9) for job in scenario.jobs]
    mechanism = watched(scenario.mechanism, jobs)
    scheduler: Scheduler[Any] = Scheduler(
        scenario.cluster, SPEEDS, mechanism, plan_lead_s=plan_lead_s
    )
    cluster = SlowLeavingCluster(scheduler, mechanism)
    cluster.submit(jobs[0], 0.0)
    for turn, job in enumerate(jobs[1:] + [None] * 90):
        at = cluster.next_at
        require(at < math.inf, "it sleeps for ever while jobs wait")
        cluster.wake()
        if job is not None:
            cluster.submit(job, at)
        cluster.let_go(at, part=(0.0, 0.0, 0.5, 1.0)[turn % 4])
    require(cluster.launches >= len(scenario.cluster.node_of) // 2, "hardly anything ran")


CHECKS = (
    check_plans_can_be_carried_out_and_all_jobs_finish,
    check_counts_devices_by_accelerator_or_refuses,
    check_survives_loss_return_and_arrival_of_nodes,
    check_leaves_alone_devices_that_others_take,
    check_survives_tenants_that_come_and_go,
    check_gang_that_cannot_run_blocks_nobody,
    check_nobody_starves,
    check_same_scenario_gives_the_same_run,
    check_replaying_the_log_gives_the_same_state,
    check_plans_while_jobs_are_still_leaving,
)


def decision_s(make: Make, *, jobs: int = 1000, devices: int = 500, decisions: int = 4) -> float:
    """Return the CPU seconds of the slowest of the first decisions on a large full cluster.

    Between two decisions a few jobs finish and as many come.
    """
    mechanism = make()
    share = devices // len(KINDS)
    counts = {kind: share + (devices % len(KINDS)) * (kind == KINDS[0]) for kind in KINDS}
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
    """Carry out commands at once, as if jobs left as soon as they are told to."""
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
    """Run a scenario with its mechanism under watch."""
    watching = replace(scenario, mechanism=watched(scenario.mechanism, scenario.jobs))
    record, _ = simulate(_guarded(watching))
    return scenario, record


def _guarded(scenario: Scenario) -> Scenario:
    """Return the scenario with an end to it, should the mechanism never run some job."""

    def in_time(event: ev.Event) -> None:
        require(event.at < _LONGEST_S, f"jobs still wait after {_LONGEST_S:g} s")

    return replace(scenario, on_event=in_time)
