"""Runs a simulation for a command: progress on the terminal, an event log on demand."""

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead.cli.research.caveats import warn_if_assumed, warn_if_endless, warn_if_many_rounds
from fairlead.cli.shared.output_files import refuse_overwriting
from fairlead.cli.shared.skipped_jobs import suggest_skipping
from fairlead.mechanisms.base import FluidMechanism
from fairlead.model.errors import InputError, UsageError
from fairlead.sim.metrics import Result
from fairlead.sim.runs import SimulationOptions, run_scenario, scenario_of
from fairlead.sim.scenario import Scenario

if TYPE_CHECKING:
    from fairlead.sim.run_log import EventLog

_FIRST_LINE_S, _LINE_S = 10.0, 60.0
"""seconds until the first line of progress, and between two"""


def run_simulation(
    setup: SimulationOptions, *, log: Path | None = None, show_progress: bool = False
) -> Result:
    """Run a simulation and return its figures; CPU time counts from the process's start."""
    started = time.perf_counter()
    if log is not None:
        refuse_overwriting("--log", log, inputs=setup.files)
    with suggest_skipping():
        scenario = scenario_of(setup)
    warn_if_endless(scenario.restore_cost_s, [scenario.mechanism])
    warn_if_many_rounds(scenario)
    warn_if_assumed(scenario.speeds, scenario.whole_cluster)
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


@contextmanager
def _progress(scenario: Scenario, shown: bool) -> Iterator[Any]:
    if not shown:
        yield None
        return
    if not sys.stderr.isatty():
        with _lines_of_progress(len(scenario.jobs)) as on_progress:
            yield on_progress
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from fairlead.cli.shared.output import messages

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=messages, transient=True) as bar:
        task = bar.add_task("simulating", total=len(scenario.jobs))

        def show(at: float, finished: int) -> None:
            day = math.floor(at / 86400)
            bar.update(task, completed=finished, description=f"simulating, day {day}")

        yield show


@contextmanager
def _lines_of_progress(jobs: int) -> Iterator[Callable[[float, int], None]]:
    """Print a line on stderr after a while and every minute: no run is silent for long."""
    began, ended, finished = time.monotonic(), threading.Event(), 0

    def note(_: float, count: int) -> None:
        nonlocal finished
        finished = count

    def print_lines() -> None:
        wait_s = _FIRST_LINE_S
        while not ended.wait(wait_s):
            # Rich takes longer to load than a short run takes.
            from fairlead.cli.shared.output import duration, messages

            passed = duration(time.monotonic() - began)
            messages.print(f"simulating for {passed}: {finished} of {jobs} jobs have finished")
            wait_s = _LINE_S

    printer = threading.Thread(target=print_lines, daemon=True)
    printer.start()
    try:
        yield note
    finally:
        ended.set()
        printer.join()


@contextmanager
def _event_log(
    path: Path | None, setup: SimulationOptions, scenario: Scenario
) -> "Iterator[EventLog | None]":
    if path is None:
        yield None
        return
    from fairlead.sim.run_log import EventLog

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
