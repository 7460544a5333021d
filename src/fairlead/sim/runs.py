"""Builds scenarios from named inputs, runs them and summarises the results."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead.core import Scheduler
from fairlead.files import (
    TenantsFile,
    Trace,
    check_trace,
    read_cluster,
    read_node_events,
    read_tenants,
    read_trace,
    skip_impossible,
)
from fairlead.files.parsing.fields import whole_number
from fairlead.files.speeds.prior import (
    GUESSED_SPEEDS,
    NO_SPEEDS,
    prior_speeds,
    simulated_speeds,
)
from fairlead.mechanisms.base import FluidMechanism, SupportsTrades
from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.capabilities import capabilities_of
from fairlead.model.errors import InputError, UsageError
from fairlead.model.speeds.planned import Trials
from fairlead.model.speeds.table import SpeedTable
from fairlead.model.submission import bounds
from fairlead.model.submission.skipped_job import SkippedJob
from fairlead.model.tenants.tenant import Tenant
from fairlead.sim.driver import simulate
from fairlead.sim.metrics import Result, summarise
from fairlead.sim.physics.true_speeds import TrueSpeeds
from fairlead.sim.record import Record
from fairlead.sim.scenario import Learning, Scenario

if TYPE_CHECKING:
    from fairlead.sim.physics.effects import Physics


@dataclass(frozen=True, kw_only=True)
class SimulationOptions:
    """Inputs of a simulation: files, policy, mechanism and numbers."""

    cluster: str
    speeds: str
    policy: str
    trace: str | None = None
    mechanism: str | None = None
    round_s: float | None = None
    restore_cost_s: float = 0.0
    physics: str = "none"
    believed: str | None = None
    truth: str | None = None
    """true speeds; ``speeds`` is then the prior belief, which jobs' measurements change"""
    noise: float = 0.0
    """standard deviation of the logarithm of a measured speed"""
    plan_on: float = 0.5
    """quantile of estimated speeds that decisions use"""
    explore: bool = False
    """whether jobs try accelerators where that is expected to be worth more than it costs"""
    failures: Path | None = None
    window: str | None = None
    tenants_file: Path | None = None
    seed: int = 0
    intervals: bool = False
    skip_impossible: bool = False
    """whether to leave out jobs that can never run, instead of raising an error"""

    @property
    def files(self) -> dict[str, str | Path | None]:
        """Option → its value, for the options that may name a file to read."""
        return {
            "--trace": self.trace,
            "--speeds": self.speeds,
            "--cluster": self.cluster,
            "--believed": self.believed,
            "--truth": self.truth,
            "--physics": self.physics,
            "--failures": self.failures,
            "--tenants-file": self.tenants_file,
        }


def scenario_of(setup: SimulationOptions) -> Scenario:
    """Read the files that the options name, check them against each other, return the scenario."""
    bounds.RESTORE_COST_RANGE.check("restore_cost_s", setup.restore_cost_s)
    bounds.NOISE_RANGE.check("noise", setup.noise)
    bounds.PLAN_ON_RANGE.check("plan_on", setup.plan_on)
    mechanism = create_mechanism(setup.policy, setup.mechanism, setup.round_s)
    physics = _physics(setup.physics)
    if physics is not None and isinstance(mechanism, FluidMechanism):
        raise UsageError("--physics: not supported by fluid mechanisms: expected none")
    cluster = read_cluster(setup.cluster)
    speeds, believed = _speeds(setup, cluster.accelerators)
    if setup.truth is not None and isinstance(mechanism, FluidMechanism):
        raise UsageError("--truth: not supported by fluid mechanisms, which measure nothing")
    trace = read_trace(setup.trace) if setup.trace else _default_trace(setup, speeds)
    tenancy = read_tenants(setup.tenants_file) if setup.tenants_file else TenantsFile()
    tenants = tenancy.tenants_of(cluster)
    limited = _zero_limits(tenants) if isinstance(mechanism, FluidMechanism) else tenants
    limits = speeds, cluster, capabilities_of(mechanism), limited
    skipped: tuple[SkippedJob, ...] = ()
    if setup.skip_impossible:
        trace, skipped = skip_impossible(trace, *limits)
    else:
        check_trace(trace, *limits)
    window = parse_window(setup.window, len(trace))
    return Scenario(
        cluster=cluster,
        speeds=speeds,
        jobs=trace.jobs,
        skipped=skipped,
        mechanism=mechanism,
        believed=believed,
        learning=None if setup.truth is None else Learning(setup.noise, setup.seed),
        tenants=tenants,
        history=tenancy.history,
        restore_cost_s=setup.restore_cost_s,
        physics=physics,
        node_events=read_node_events(setup.failures, cluster) if setup.failures else (),
        window=window,
        intervals=setup.intervals,
    )


def _zero_limits(tenants: Sequence[Tenant]) -> list[Tenant]:
    """Return tenants without limits above 0, within which fluid gangs run for part of the time."""
    return [
        replace(tenant, limit={name: 0.0 for name, devices in tenant.limit.items() if not devices})
        for tenant in tenants
    ]


def _physics(name: str) -> "Physics | None":
    if name == "none":
        return None
    from fairlead.sim.physics.reader import read_physics  # noqa: PLC0415  # most runs have none

    return read_physics(name)


def _speeds(
    setup: SimulationOptions, accelerators: tuple[str, ...]
) -> tuple[SpeedTable, SpeedTable | None]:
    """Return the true speeds, and the believed ones where these differ."""
    if setup.truth is None:
        if setup.speeds in (NO_SPEEDS, GUESSED_SPEEDS):
            raise UsageError(
                f"--truth: missing: jobs cannot run at --speeds {setup.speeds}: expected a speed"
                " table"
            )
        if setup.noise:
            raise UsageError("--noise: nothing is measured without --truth: expected both")
        if setup.plan_on != 0.5:
            raise UsageError("--plan-on: nothing is estimated without --truth: expected both")
        if setup.explore:
            raise UsageError("--explore: nothing is measured without --truth: expected both")
        believed = simulated_speeds(setup.believed, accelerators) if setup.believed else None
        return simulated_speeds(setup.speeds, accelerators), believed
    if setup.believed is not None:
        raise UsageError("--believed: not with --truth: expected the prior belief as --speeds")
    prior = prior_speeds(setup.speeds)
    if setup.plan_on != 0.5 and prior.learner is None:
        raise UsageError("--plan-on: --speeds none states no doubt: expected guess or a table")
    if setup.explore and (setup.plan_on != 0.5 or prior.learner is None):
        raise UsageError(
            "--explore: weighs trials by the doubt of estimates: expected --speeds guess or a"
            " table, and no --plan-on"
        )
    trials = Trials() if setup.explore else None
    truth = simulated_speeds(setup.truth, accelerators)
    return truth, replace(prior, quantile=setup.plan_on, trials=trials)


def _default_trace(setup: SimulationOptions, speeds: SpeedTable) -> Trace:
    """Return the bundled trace; raise UsageError if the speed table lacks its workloads."""
    from fairlead.sim.generate import default_trace  # noqa: PLC0415  # most runs name a trace

    trace = default_trace()
    if not setup.skip_impossible and any(job.workload not in speeds.gangs for job in trace):
        name = setup.truth or setup.speeds
        raise UsageError(
            f"--trace: missing: the bundled trace has workloads that {name} lacks: expected a"
            f" trace such as `fairlead trace generate --speeds {name} --out trace.csv` writes"
        )
    return trace


def parse_window(text: str | None, n_jobs: int) -> tuple[int, int] | None:
    """Return (A, B) of the text ``A:B``, B exclusive; reject an empty window."""
    if text is None:
        return None
    first, colon, last = text.partition(":")
    try:
        window = whole_number(first or 0), whole_number(last) if last else n_jobs
    except InputError:
        window = 0, 0
    if not colon or not 0 <= window[0] < window[1] <= n_jobs:
        raise UsageError(
            f"--window: not a range of jobs: {text!r}: expected A:B with 0 <= A < B <= {n_jobs}"
        )
    return window


def run_scenario(name: str, scenario: Scenario) -> tuple[Result, Record, Scheduler[Any] | None]:
    """Simulate a scenario; return the figures, the record and the scheduler in its last state."""
    started, cpu = time.perf_counter(), time.process_time()
    record, scheduler = simulate(scenario)
    whole_number = scenario.whole_cluster
    result = summarise(
        record,
        whole_number,
        TrueSpeeds(whole_number, scenario.speeds, scenario.jobs).solo_speeds(),
        policy=name,
        tenants=scenario.tenants,
        window=scenario.window,
        cpu_s=time.process_time() - cpu,
        wall_s=time.perf_counter() - started,
    )
    result = replace(result, skipped=list(scenario.skipped))
    mechanism = scenario.mechanism
    if scheduler is not None and isinstance(mechanism, SupportsTrades):
        made = mechanism.trades(
            scheduler.memory, scheduler.jobs.tenants, whole_number.accelerators
        )
        result = replace(result, trades=made)
    return result, record, scheduler
