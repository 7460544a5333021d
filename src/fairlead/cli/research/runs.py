"""From the options of a command to a simulation and its result."""

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairlead.core import Scheduler
from fairlead.files import (
    TenantsFile,
    check_trace,
    read_cluster,
    read_node_events,
    read_speeds,
    read_tenants,
    read_trace,
)
from fairlead.files.parsing.fields import whole
from fairlead.mechanisms.base import Fluid, Trades
from fairlead.mechanisms.factory import realise
from fairlead.model.errors import InputError, UsageError
from fairlead.model.instance import Instance
from fairlead.sim.driver import simulate
from fairlead.sim.generate import default_trace
from fairlead.sim.metrics import Result, summarise
from fairlead.sim.physics.reader import read_physics
from fairlead.sim.physics.true_speeds import Truth
from fairlead.sim.record import Record
from fairlead.sim.run_log import EventLog
from fairlead.sim.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class SimulationOptions:
    """A simulation as it is asked for on the command line."""

    cluster: str
    speeds: str
    policy: str
    trace: str | None = None
    mechanism: str | None = None
    round_s: float | None = None
    restore_cost_s: float = 0.0
    physics: str = "none"
    believed: str | None = None
    failures: Path | None = None
    window: str | None = None
    tenants_file: Path | None = None
    seed: int = 0
    intervals: bool = False


def scenario_of(setup: SimulationOptions) -> Scenario:
    """Read the files that a setup names and check that they fit each other."""
    mechanism = realise(setup.policy, setup.mechanism, setup.round_s)
    physics = read_physics(setup.physics)
    if physics is not None and isinstance(mechanism, Fluid):
        raise UsageError("--physics: a fluid mechanism places nothing; leave out --physics")
    cluster = read_cluster(setup.cluster)
    speeds = read_speeds(setup.speeds)
    trace = read_trace(setup.trace) if setup.trace else default_trace()
    mixes = getattr(mechanism, "mixes_accelerators", False)
    alternatives = getattr(mechanism, "takes_alternatives", False)
    check_trace(trace, speeds, cluster, mixes=mixes, alternatives=alternatives)
    window = parse_window(setup.window, len(trace))
    tenancy = read_tenants(setup.tenants_file) if setup.tenants_file else TenantsFile()
    return Scenario(
        cluster=cluster,
        speeds=speeds,
        jobs=trace.jobs,
        mechanism=mechanism,
        believed=read_speeds(setup.believed) if setup.believed else None,
        tenants=Instance(cluster, tenants=tenancy.tenants).tenants,
        history=tenancy.history,
        restore_cost_s=setup.restore_cost_s,
        physics=physics,
        node_events=read_node_events(setup.failures, cluster) if setup.failures else (),
        window=window,
        intervals=setup.intervals,
    )


def parse_window(text: str | None, n_jobs: int) -> tuple[int, int] | None:
    """Return the first index and the one after the last of ``A:B``; refuse an empty window."""
    if text is None:
        return None
    first, colon, last = text.partition(":")
    try:
        window = whole(first or 0), whole(last) if last else n_jobs
    except InputError:
        window = 0, 0
    if not colon or not 0 <= window[0] < window[1] <= n_jobs:
        raise UsageError(
            f"--window {text!r} is not A:B with 0 <= A < B <= {n_jobs}, the number of jobs"
        )
    return window


def run_simulation(
    setup: SimulationOptions, *, log: Path | None = None, show_progress: bool = False
) -> Result:
    """Run a setup and return its figures; CPU time counts from the start of the process."""
    started = time.perf_counter()
    scenario = scenario_of(setup)
    _warn_if_endless(scenario)
    with (
        _progress(scenario, show_progress) as on_progress,
        _event_log(log, setup, scenario) as note,
    ):
        scenario = replace(
            scenario, on_progress=on_progress, on_event=note.write if note else None
        )
        result, _, scheduler = run_scenario(setup.policy, scenario)
        if note and scheduler:
            note.close(scheduler)
    return replace(result, cpu_s=time.process_time(), wall_s=time.perf_counter() - started)


def _warn_if_endless(scenario: Scenario) -> None:
    """Say so where a simulation may never end."""
    round_s = getattr(scenario.mechanism, "round_s", math.inf)
    if scenario.restore_cost_s >= round_s:
        from fairlead.cli.shared.output import messages

        messages.print(
            f"--restore-cost {scenario.restore_cost_s:g} is not below the round of {round_s:g} s:"
            " a job that is moved every round never gets on, and this may never end",
            style="yellow",
            highlight=False,
            soft_wrap=True,
        )


def run_scenario(name: str, scenario: Scenario) -> tuple[Result, Record, Scheduler[Any] | None]:
    """Simulate and summarise; return the figures, the record and the scheduler's last state."""
    started, cpu = time.perf_counter(), time.process_time()
    record, scheduler = simulate(scenario)
    whole = scenario.whole_cluster
    result = summarise(
        record,
        whole,
        Truth(whole, scenario.speeds, scenario.jobs).alone(),
        policy=name,
        tenants=scenario.tenants,
        window=scenario.window,
        cpu_s=time.process_time() - cpu,
        wall_s=time.perf_counter() - started,
    )
    mechanism = scenario.mechanism
    if scheduler is not None and isinstance(mechanism, Trades):
        made = mechanism.trades(scheduler.memory, scheduler.jobs.tenants, whole.accelerators)
        result = replace(result, trades=made)
    return result, record, scheduler


@contextmanager
def _progress(scenario: Scenario, shown: bool) -> Iterator[Any]:
    if not shown or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from fairlead.cli.shared.output import messages

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=messages, transient=True) as bar:
        task = bar.add_task("simulating", total=len(scenario.jobs))

        def show(at: float, finished: int) -> None:
            day = math.floor(at / 86400)
            bar.update(task, completed=finished, description=f"simulating, day {day}")

        yield show


@contextmanager
def _event_log(
    path: Path | None, setup: SimulationOptions, scenario: Scenario
) -> Iterator[EventLog | None]:
    if path is None:
        yield None
        return
    if isinstance(scenario.mechanism, Fluid):
        raise UsageError("--log: a fluid mechanism has no events to log; leave out --log")
    try:
        opened = path.open("w", encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"it cannot be written ({error.strerror})",
            fix="give --log a file that can be written",
            source=str(path),
        ) from None
    with opened as file:
        yield EventLog(
            file,
            scenario.cluster,
            scenario.believed or scenario.speeds,
            policy=setup.policy,
            mechanism=setup.mechanism,
            round_s=setup.round_s,
        )
