"""``fairlead submit``."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.client.job_options import job_values, with_job_options
from fairlead.cli.shared.options import Json
from fairlead.model.errors import UsageError
from fairlead.model.submission.new_job import NewJob

if TYPE_CHECKING:  # loads the HTTP library
    from fairlead.client import Client


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
    snapshot: Annotated[
        bool,
        typer.Option(
            "--snapshot",
            help="Run a copy of the directory as it is now: in a Git checkout all files that Git"
            " does not ignore, elsewhere all files.",
            rich_help_panel="Execution",
        ),
    ] = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Submit a job, or a sweep of jobs, and print each job's id.

    The command comes last: all words after its first belong to it. A Python file runs with the
    interpreter that runs this command, so the packages installed here are available; other
    commands are looked up in your PATH if the server is on this machine.

    Example:  fairlead submit --steps 1000 train.py --batch-size 64

    Example:  fairlead submit --workload ResNet-50 --array lr=0.1,0.01 train.py --lr {lr}
    """
    from fairlead.cli.client.sweep import expand
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.preempt_warning import preempt_warning

    job, swept, from_file = _read_job(command, file, array or [], options)
    warning = preempt_warning(job.preempt, job.command, job.directory)
    if warning is not None:
        typer.echo(f"warning: {warning}", err=True)
    submitted = _send(expand(job, swept), snapshot=snapshot or from_file)
    if as_json:
        print_json(submitted if swept else submitted[0])
    else:
        for answer in submitted:
            typer.echo(answer["id"])


def _read_job(
    command: list[str] | None, file: Path | None, array: list[str], options: Mapping[str, Any]
) -> tuple[NewJob, Mapping[str, Sequence[str]], bool]:
    """Return the job of the file and the options, its sweep, and whether to snapshot its code.

    Options take precedence over the file.
    """
    from fairlead.files.job_file import parse_arrays, read_job_file

    values: dict[str, Any] = {}
    swept: Mapping[str, Sequence[str]] = {}
    snapshot = False
    if file is not None:
        job_file = read_job_file(file)
        values, swept, snapshot = dict(job_file.values), job_file.array, job_file.snapshot
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
    return complete_job(values), swept, snapshot


def complete_job(values: Mapping[str, Any]) -> NewJob:
    """Return a job with an absolute directory and an interpreter in front of a Python file."""
    where = Path(values.get("directory") or ".").absolute()
    interpreter = "python" if values.get("container") else sys.executable
    command = command_with_interpreter(values["command"], where, interpreter)
    return NewJob(**{**values, "directory": str(where), "command": command})


def command_with_interpreter(
    command: tuple[str, ...], where: Path, interpreter: str
) -> tuple[str, ...]:
    """Return the command, with an interpreter in front of a Python file."""
    first = Path(command[0])
    if first.suffix != ".py":
        return command
    if not (where / first).is_file():
        raise UsageError(
            f"command: no such file: {where / first}: expected a Python file, see --directory"
        )
    return (interpreter, *command)


def _send(jobs: Sequence[NewJob], *, snapshot: bool) -> list[dict[str, Any]]:
    from fairlead.cli.client.sweep import parts_of
    from fairlead.client import Client, ServerError

    server = Client.from_environment()
    if snapshot:
        jobs = with_snapshot(server, jobs)
    messages = [with_search_path(server, job).message() for job in jobs]
    if len(messages) == 1:
        return [server.post_once("/v1/jobs", messages[0])]
    submitted: list[dict[str, Any]] = []
    for part in parts_of(messages):
        try:
            submitted += server.submit_all(part)
        except ServerError as error:
            if not submitted:
                raise
            first, last = submitted[0]["id"], submitted[-1]["id"]
            ids = first if first == last else f"{first} to {last}"
            raise ServerError(f"{error}; already submitted: {ids}", error.code) from None
    return submitted


def with_search_path(server: "Client", job: NewJob) -> NewJob:
    """Return the job with the PATH of this process, if the server is on this machine.

    `python` must be the submitter's, not the server's; on other machines paths differ.
    """
    if job.container or not server.is_here or "PATH" not in os.environ:
        return job
    return replace(job, environment={"PATH": os.environ["PATH"], **job.environment})


def with_snapshot(server: "Client", jobs: Sequence[NewJob]) -> list[NewJob]:
    """Upload the directory of the jobs, which is the same for all; return them with its id."""
    code = server.upload_code(jobs[0].directory, tenant=jobs[0].tenant)
    return [
        replace(job, code_snapshot=code.digest, code_commit=code.commit, code_dirty=code.is_dirty)
        for job in jobs
    ]
