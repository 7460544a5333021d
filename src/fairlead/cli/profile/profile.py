"""``fairlead profile``."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.shared.options import Json
from fairlead.model.errors import InputError, UsageError

if TYPE_CHECKING:
    from fairlead.files.speeds.measured import MeasuredSpeed
    from fairlead.job.profile import Speed

_MIN_STEPS = 20


def profile(
    command: Annotated[
        list[str], typer.Argument(help="Command to run: a Python file or a program.")
    ],
    *,
    workload: Annotated[str, typer.Option(help="Workload, the key of the speed table.")],
    out: Annotated[
        Path, typer.Option(help="Speed table in CSV; rows of other workloads stay.")
    ] = Path("speeds.csv"),
    steps: Annotated[int, typer.Option(help="Steps to measure.", min=_MIN_STEPS)] = 200,
    warmup: Annotated[int, typer.Option(help="Steps before the first measured one.", min=1)] = 20,
    gang: Annotated[int, typer.Option(help="Devices needed at once.", min=1)] = 1,
    accelerators: Annotated[
        str | None,
        typer.Option(help="Accelerators to measure, separated by commas.", show_default="all"),
    ] = None,
    directory: Annotated[
        Path | None, typer.Option(help="Working directory.", show_default="here")
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(help="Tenant of the jobs.", show_default="the token's tenant"),
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds until jobs that have not ended are cancelled.", min=1)
    ] = 3600.0,
    here: Annotated[
        bool,
        typer.Option("--here", help="Run on the devices of this machine, without a server."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure the speed of a training program on each accelerator.

    The program makes its steps with fairlead.job. It runs once on each accelerator, as a short
    job that is not preempted, and ends after the measured steps. The speeds and their 95 %
    confidence intervals are added to a speed table for `fairlead serve --speeds` and `fairlead
    policy set --speeds`; the server believes the speeds of its jobs at once.

    Example:  fairlead profile --workload resnet50-64 train.py --batch-size 64

    Example:  fairlead profile --here --workload resnet50-64 train.py
    """
    from fairlead.cli.client.submit import command_with_interpreter
    from fairlead.files.speeds.measured import MeasuredSpeed, add_speeds, check_target

    if here and gang > 1:
        raise UsageError("--gang: more than one device: expected a server, without --here")
    if not workload.strip():
        raise UsageError("--workload: empty: expected a name such as resnet50-64")
    wanted = [name.strip() for name in (accelerators or "").split(",") if name.strip()]
    check_target(out)
    where = (directory or Path()).absolute()
    words = command_with_interpreter(tuple(command), where, sys.executable)
    job = {"command": words, "directory": str(where), "workload": workload, "gang": gang}
    if tenant is not None:
        job["tenant"] = tenant
    times = (warmup, steps)
    measure = _here if here else _on_server
    speeds, failures = measure(job, wanted, times, timeout)
    measured = [MeasuredSpeed(workload, gang, name, *speed) for name, speed in speeds.items()]
    if measured:
        add_speeds(out, measured)
        _print(measured, out, as_json=as_json)
    if failures:
        raise failures[0]


def _here(
    job: Mapping[str, Any], wanted: list[str], steps: tuple[int, int], timeout_s: float
) -> tuple[Mapping[str, "Speed"], Sequence[InputError]]:
    from fairlead.cli.profile.here import devices_here, run_here
    from fairlead.cli.shared.output import messages

    speeds = run_here(
        job["command"],
        Path(job["directory"]),
        devices_here(wanted),
        steps=steps,
        timeout_s=timeout_s,
        seen=lambda name: messages.print(f"{name}: measuring {steps[1]} steps"),
    )
    return speeds, ()


def _on_server(
    job: Mapping[str, Any], wanted: list[str], steps: tuple[int, int], timeout_s: float
) -> tuple[Mapping[str, "Speed"], Sequence[InputError]]:
    from fairlead.cli.profile.on_server import accelerators_of, run_jobs
    from fairlead.cli.profile.progress import shown_progress
    from fairlead.client import Client

    server = Client.from_environment()
    names = accelerators_of(server, wanted)
    with shown_progress(sum(steps)) as seen:
        ended = run_jobs(server, job, names, steps=steps, timeout_s=timeout_s, seen=seen)
    return ended.speeds, ended.failures


def _print(measured: "list[MeasuredSpeed]", out: Path, *, as_json: bool) -> None:
    from dataclasses import asdict

    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import messages, table

    if as_json:
        print_json([asdict(one) for one in measured])
        return
    rows = [
        [one.accelerator, f"{one.steps_per_s:.4g}", f"{one.low:.4g} to {one.high:.4g}"]
        for one in measured
    ]
    title = f"{measured[0].workload} on {measured[0].gang} device(s)"
    table(title, ["accelerator", "steps/s", "95 % interval"], rows)
    messages.print(f"written to {out}: use it with `fairlead policy set --speeds {out}`")
