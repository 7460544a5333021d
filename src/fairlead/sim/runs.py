"""Builds scenarios from named inputs, runs them and summarises the results."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairlead.core import Scheduler
from fairlead.estimate.learned import DataSheetLearner
from fairlead.files import (
    TenantsFile,
    Trace,
    check_trace,
    read_cluster,
    read_node_events,
    read_speeds,
    read_tenants,
    read_trace,
    skip_impossible,
)
from fairlead.files.bundled import data_sheets
from fairlead.files.parsing.fields import whole_number
from fairlead.mechanisms.base import FluidMechanism, SupportsTrades
from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.capabilities import capabilities_of
from fairlead.model.errors import InputError, UsageError
from fairlead.model.instance import Instance
from fairlead.model.speeds.estimates import DEFAULT_SPEED
from fairlead.model.speeds.table import SpeedTable
from fairlead.model.submission.skipped_job import SkippedJob
from fairlead.sim.driver import simulate
from fairlead.sim.generate import default_trace
from fairlead.sim.metrics import Result, summarise
from fairlead.sim.physics.reader import read_physics
from fairlead.sim.physics.true_speeds import TrueSpeeds
from fairlead.sim.record import Record
from fairlead.sim.scenario import Learning, Scenario

NO_SPEEDS, GUESSED_SPEEDS = "none", "guess"
"""prior beliefs without a table: all accelerators are equal, or as their data sheets say"""


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
    failures: Path | None = None
    window: str | None = None
    tenants_file: Path | None = None
    seed: int = 0
    intervals: bool = False
    skip_impossible: bool = False
    """whether to leave out jobs that can never run, instead of raising an error"""


def scenario_of(setup: SimulationOptions) -> Scenario:
    """Read the files that the options name, check them against each other, return the scenario."""
    mechanism = create_mechanism(setup.policy, setup.mechanism, setup.round_s)
    physics = read_physics(setup.physics)
    if physics is not None and isinstance(mechanism, FluidMechanism):
        raise UsageError("--physics: not supported by fluid mechanisms: expected none")
    cluster = read_cluster(setup.cluster)
    speeds, believed = _speeds(setup)
    if setup.truth is not None and isinstance(mechanism, FluidMechanism):
        raise UsageError("--truth: not supported by fluid mechanisms, which measure nothing")
    trace = read_trace(setup.trace) if setup.trace else _default_trace(setup, speeds)
    limits = speeds, cluster, capabilities_of(mechanism)
    skipped: tuple[SkippedJob, ...] = ()
    if setup.skip_impossible:
        trace, skipped = skip_impossible(trace, *limits)
    else:
        check_trace(trace, *limits)
    window = parse_window(setup.window, len(trace))
    tenancy = read_tenants(setup.tenants_file) if setup.tenants_file else TenantsFile()
    return Scenario(
        cluster=cluster,
        speeds=speeds,
        jobs=trace.jobs,
        skipped=skipped,
        mechanism=mechanism,
        believed=believed,
        learning=None if setup.truth is None else Learning(setup.noise, setup.seed),
        tenants=Instance(cluster, tenants=tenancy.tenants).tenants,
        history=tenancy.history,
        restore_cost_s=setup.restore_cost_s,
        physics=physics,
        node_events=read_node_events(setup.failures, cluster) if setup.failures else (),
        window=window,
        intervals=setup.intervals,
    )


def _speeds(setup: SimulationOptions) -> tuple[SpeedTable, SpeedTable | None]:
    """Return the true speeds, and the believed ones where these differ."""
    if setup.truth is None:
        if setup.speeds in (NO_SPEEDS, GUESSED_SPEEDS):
            raise UsageError(
                f"--truth: missing: jobs cannot run at --speeds {setup.speeds}: expected a speed"
                " table"
            )
        if setup.noise:
            raise UsageError("--noise: nothing is measured without --truth: expected both")
        believed = read_speeds(setup.believed) if setup.believed else None
        return read_speeds(setup.speeds), believed
    if setup.believed is not None:
        raise UsageError("--believed: not with --truth: expected the prior belief as --speeds")
    truth = read_speeds(setup.truth)
    if setup.speeds == NO_SPEEDS:
        return truth, SpeedTable({}, assumed=DEFAULT_SPEED)
    prior = {} if setup.speeds == GUESSED_SPEEDS else read_speeds(setup.speeds).steps_per_s
    learner = DataSheetLearner.of(data_sheets())
    return truth, SpeedTable(prior, assumed=DEFAULT_SPEED, learner=learner)


def _default_trace(setup: SimulationOptions, speeds: SpeedTable) -> Trace:
    """Return the bundled trace; raise UsageError if the speed table lacks its workloads."""
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
