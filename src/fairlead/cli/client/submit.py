"""``fairlead submit``."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli.client.job_options import job_values, with_job_options
from fairlead.cli.shared.options import Json
from fairlead.model.errors import UsageError
from fairlead.model.submission.new_job import NewJob


@with_job_options
def submit(
    command: Annotated[
        list[str] | None, typer.Argument(help="Command to run: a Python file or a program.")
    ] = None,
    *,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="Job file in YAML; options take precedence over it."),
    ] = None,
    array: Annotated[
        list[str] | None,
        typer.Option(
            help="Submit one job for each value: 0-9, or lr=0.1,0.01; repeatable, for all"
            " combinations. {index} and {lr} are replaced by the values."
        ),
    ] = None,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Submit a job, or a sweep of jobs, and print each job's id.

    The command comes last: all words after its first belong to it. A Python file runs with the
    interpreter that runs this command, so the packages installed here are available; other
    commands are looked up in your PATH if the server is on this machine.

    Example:  fairlead submit --workload ResNet-50 --array lr=0.1,0.01 train.py --lr {lr}
    """
    from fairlead.cli.client.sweep import expand
    from fairlead.cli.shared.json_output import print_json

    job, swept = _read_job(command, file, array or [], options)
    submitted = _send(expand(job, swept))
    if as_json:
        print_json(submitted if swept else submitted[0])
    else:
        for answer in submitted:
            typer.echo(answer["id"])


def _read_job(
    command: list[str] | None, file: Path | None, array: list[str], options: Mapping[str, Any]
) -> tuple[NewJob, Mapping[str, Sequence[str]]]:
    """Return the job of the file and the options, options first, and its sweep."""
    from fairlead.files.job_file import parse_arrays, read_job_file

    values: dict[str, Any] = {}
    swept: Mapping[str, Sequence[str]] = {}
    if file is not None:
        job_file = read_job_file(file)
        values, swept = dict(job_file.values), job_file.array
        if "directory" in values:
            values["directory"] = str(file.parent / values["directory"])
    own = job_values(options)
    variables = {**values.get("environment", {}), **own.get("environment", {})}
    values = {**values, **own, "environment": variables}
    if command:
        values["command"] = tuple(command)
    if array:
        swept = parse_arrays(array)
    if not values.get("command"):
        raise UsageError("command: missing: expected a Python file, a program or --file")
    where = Path(values.get("directory") or ".").absolute()
    values["directory"] = str(where)
    values["command"] = _command_with_interpreter(values["command"], where)
    return NewJob(**values), swept


def _command_with_interpreter(command: tuple[str, ...], where: Path) -> tuple[str, ...]:
    """Return the command, with this interpreter in front of a Python file."""
    first = Path(command[0])
    if first.suffix != ".py":
        return command
    if not (where / first).is_file():
        raise UsageError(f"command: no such file: {where / first}")
    return (sys.executable, *command)


def _send(jobs: Sequence[NewJob]) -> list[dict[str, Any]]:
    from fairlead.client import Client, ServerError

    server = Client.from_environment()
    # `python` must be the submitter's, not the server's; on other machines paths differ.
    here = {"PATH": os.environ["PATH"]} if server.is_here and "PATH" in os.environ else {}
    submitted: list[dict[str, Any]] = []
    for job in jobs:
        complete = replace(job, environment={**here, **job.environment})
        try:
            submitted.append(server.post("/v1/jobs", complete.message()))
        except ServerError as error:
            if not submitted:
                raise
            first, last = submitted[0]["id"], submitted[-1]["id"]
            ids = first if first == last else f"{first} to {last}"
            raise ServerError(f"{error}; already submitted: {ids}", error.code) from None
    return submitted
