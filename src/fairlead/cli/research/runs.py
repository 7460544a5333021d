"""Runs a simulation for a command: progress on the terminal, an event log on demand."""

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairlead.mechanisms.base import FluidMechanism, HasRounds
from fairlead.model.errors import InputError, UsageError
from fairlead.sim.metrics import Result
from fairlead.sim.run_log import EventLog
from fairlead.sim.runs import SimulationOptions, run_scenario, scenario_of
from fairlead.sim.scenario import Scenario


def run_simulation(
    setup: SimulationOptions, *, log: Path | None = None, show_progress: bool = False
) -> Result:
    """Run a simulation and return its figures; CPU time counts from the process's start."""
    started = time.perf_counter()
    scenario = scenario_of(setup)
    _warn_if_endless(scenario)
    _warn_if_assumed(scenario)
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
    """Print a warning if the simulation may never end."""
    mechanism = scenario.mechanism
    round_s = mechanism.round_s if isinstance(mechanism, HasRounds) else math.inf
    if scenario.restore_cost_s >= round_s:
        from fairlead.cli.shared.output import messages

        messages.print(
            f"--restore-cost: {scenario.restore_cost_s:g} s is not below the round of"
            f" {round_s:g} s: jobs that move every round make no progress, so the simulation may"
            " never end",
            style="yellow",
            highlight=False,
            soft_wrap=True,
        )


def _warn_if_assumed(scenario: Scenario) -> None:
    """Print a warning if the results rest on speeds that the table lacks."""
    lacking = scenario.speeds.lacking(scenario.whole_cluster.accelerators)
    if lacking:
        from fairlead.cli.shared.output import messages

        messages.print(
            f"--speeds: no speeds on {', '.join(lacking)}: assumed from those of the same"
            " workloads on other accelerators; add rows to the table for exact results",
            style="yellow",
            highlight=False,
            soft_wrap=True,
        )


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
    if isinstance(scenario.mechanism, FluidMechanism):
        raise UsageError("--log: not supported by a fluid mechanism, which has no events")
    try:
        opened = path.open("w", encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cannot be written ({error.strerror})",
            fix="expected a writable file for --log",
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
