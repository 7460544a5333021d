"""``fairlead submit``."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli.shared.options import Json
from fairlead.model.errors import InputError, UsageError

_NEEDS, _ORDER, _RUN = "What it needs", "When it runs", "How it runs"


def submit(
    command: Annotated[
        list[str] | None, typer.Argument(help="What to run: a Python file or a command.")
    ] = None,
    *,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="A job in YAML; options here win over it.")
    ] = None,
    array: Annotated[
        list[str] | None,
        typer.Option(
            help="Submit one job for each value: 0-9, or lr=0.1,0.01; give it several times for"
            " all combinations. {index} and {lr} are filled in."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="A name for people.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Who it is for.")] = None,
    workload: Annotated[
        str | None, typer.Option(help="What decides its speed: model, batch.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Steps it makes.", min=1)] = None,
    gang: Annotated[
        int | None,
        typer.Option(
            help="Devices it needs at once.", min=1, show_default="1", rich_help_panel=_NEEDS
        ),
    ] = None,
    min_gang: Annotated[
        int | None,
        typer.Option(help="Least devices it can do with.", min=1, rich_help_panel=_NEEDS),
    ] = None,
    max_gang: Annotated[
        int | None, typer.Option(help="Most devices it can use.", min=1, rich_help_panel=_NEEDS)
    ] = None,
    accelerators: Annotated[
        str | None,
        typer.Option(
            help="Those it may use, e.g. v100,p100; k80=2: there it needs two devices.",
            show_default="all",
            rich_help_panel=_NEEDS,
        ),
    ] = None,
    memory_gib: Annotated[
        float | None,
        typer.Option("--memory", help="GiB that a device must have.", rich_help_panel=_NEEDS),
    ] = None,
    host_memory_gib: Annotated[
        float | None,
        typer.Option(
            "--host-memory", help="GiB above which it is killed.", rich_help_panel=_NEEDS
        ),
    ] = None,
    weight: Annotated[
        float | None,
        typer.Option(
            help="Entitlement relative to others.", show_default="1", rich_help_panel=_ORDER
        ),
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option(help="Higher ones come first.", show_default="0", rich_help_panel=_ORDER),
    ] = None,
    deadline_s: Annotated[
        float | None,
        typer.Option("--deadline", help="Seconds from now.", rich_help_panel=_ORDER),
    ] = None,
    multijob: Annotated[
        str | None,
        typer.Option(help="The search that these jobs are tries of.", rich_help_panel=_ORDER),
    ] = None,
    retries: Annotated[
        int | None,
        typer.Option(help="Times it may crash.", min=0, show_default="3", rich_help_panel=_RUN),
    ] = None,
    grace_s: Annotated[
        float | None,
        typer.Option(
            "--grace", help="Seconds to leave in.", show_default="30", rich_help_panel=_RUN
        ),
    ] = None,
    time_limit_s: Annotated[
        float | None,
        typer.Option("--time-limit", help="Seconds a lease may last.", rich_help_panel=_RUN),
    ] = None,
    progress_pattern: Annotated[
        str | None,
        typer.Option(
            "--progress",
            help=r"For other programs: a pattern such as 'step (\d+)'.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE for its processes.", rich_help_panel=_RUN),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(help="Where it runs.", show_default="here", rich_help_panel=_RUN),
    ] = None,
    as_json: Json = False,
) -> None:
    """Submit a job, or a sweep of jobs, and print each one's id.

    The command comes last: everything after its first word is its own. A Python file is run
    with the interpreter that runs this command, so what is installed here is there, too; other
    commands are looked up in your PATH if the server is on this machine.

    Example:  fairlead submit --workload ResNet-50 --array lr=0.1,0.01 train.py --lr {lr}
    """
    flags = dict(locals())
    from fairlead.cli.client.sweep import expand
    from fairlead.cli.shared.json_output import print_json

    body, swept = _said(flags)
    jobs = expand(body, swept)
    made = _send(jobs)
    if as_json:
        print_json(made[0] if not swept else made)
    else:
        for one in made:
            typer.echo(one["id"])


def _said(flags: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, Sequence[str]]]:
    """Return the job that the file and the options describe, options first, and its sweep."""
    from fairlead.files.job_file import FIELDS, parse_arrays, read_job_file

    body: dict[str, Any] = {}
    swept: dict[str, Sequence[str]] = {}
    if flags["file"] is not None:
        found = read_job_file(flags["file"])
        body, swept = dict(found.values), dict(found.array)
        if "directory" in body:
            body["directory"] = str(flags["file"].parent / body["directory"])
    for key in FIELDS:
        if key not in ("array", "environment") and flags.get(key) is not None:
            body[key] = flags[key]
    if flags["array"]:
        swept = dict(parse_arrays(flags["array"]))
    if not body.get("command"):
        raise UsageError("there is nothing to run; give a Python file, a command or --file")
    where = Path(body.get("directory") or ".").absolute()
    body["directory"] = str(where)
    body["command"] = _command_with_interpreter(list(body["command"]), where)
    body["environment"] = {**body.get("environment", {}), **_variables(flags["env"] or [])}
    if isinstance(body.get("accelerators"), str):
        body["accelerators"] = [kind.strip() for kind in body["accelerators"].split(",")]
    _check_accelerators(body.get("accelerators") or [])
    return body, swept


def _command_with_interpreter(command: list[str], where: Path) -> list[str]:
    """Return the command, with this interpreter in front of a Python file."""
    first = Path(command[0])
    if first.suffix != ".py":
        return command
    if not (where / first).is_file():
        raise UsageError(f"there is no file {where / first}")
    return [sys.executable, *command]


def _variables(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"--env {pair!r} is not NAME=VALUE")
        found[key] = value
    return found


def _check_accelerators(listed: Sequence[str]) -> None:
    from fairlead.model.job import parse_accelerators

    try:
        parse_accelerators(listed)
    except InputError as error:
        raise UsageError(f"--accelerators: {error.problem}; {error.fix}") from None


def _send(jobs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    from fairlead.client import Client, ServerError

    server = Client.found()
    # `python` is to be the one of whoever submits, not the server's; elsewhere paths differ.
    here = {"PATH": os.environ["PATH"]} if server.is_here and "PATH" in os.environ else {}
    made: list[dict[str, Any]] = []
    for body in jobs:
        job = {**body, "environment": {**here, **body["environment"]}}
        try:
            made.append(server.post("/v1/jobs", job))
        except ServerError as error:
            if not made:
                raise
            kept = f"{made[0]['id']} to {made[-1]['id']}" if len(made) > 1 else made[0]["id"]
            said = f"{error}; {kept} had been submitted by then"
            raise ServerError(said, error.code) from None
    return made
