"""``fairlead submit``, ``jobs``, ``job``, ``logs``, ``cancel``, ``suspend``, ``resume``."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli.options import Json

JobId = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]


def submit(
    command: Annotated[list[str], typer.Argument(help="What to run, after --.")],
    *,
    name: Annotated[str, typer.Option(help="A name for people.")] = "",
    tenant: Annotated[str | None, typer.Option(help="Who it is for.")] = None,
    workload: Annotated[str, typer.Option(help="What decides its speed: model, batch.")] = "",
    gang: Annotated[int, typer.Option(help="Devices it needs at once.", min=1)] = 1,
    steps: Annotated[int | None, typer.Option(help="Steps it makes.", min=1)] = None,
    weight: Annotated[float, typer.Option(help="Entitlement relative to others.")] = 1.0,
    priority: Annotated[int, typer.Option(help="Higher ones come first.")] = 0,
    deadline: Annotated[float | None, typer.Option(help="Seconds from now.")] = None,
    accelerators: Annotated[
        str | None, typer.Option(help="Those it may use, e.g. v100,p100. Default: all.")
    ] = None,
    memory: Annotated[float | None, typer.Option(help="GiB that a device must have.")] = None,
    retries: Annotated[int, typer.Option(help="Times it may crash.", min=0)] = 3,
    grace: Annotated[float, typer.Option(help="Seconds to leave in.")] = 30.0,
    time_limit: Annotated[float | None, typer.Option(help="Seconds a lease may last.")] = None,
    progress: Annotated[
        str | None, typer.Option(help=r"For other programs: a pattern such as 'step (\d+)'.")
    ] = None,
    env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for its processes.")] = None,
    directory: Annotated[Path | None, typer.Option(help="Where it runs. Default: here.")] = None,
    as_json: Json = False,
) -> None:
    """Submit a job and print its id.

    Example:  fairlead submit --workload ResNet-50 --steps 5000 -- python train.py
    """
    from fairlead.cli.output import print_json
    from fairlead.client import Client
    from fairlead.model.errors import UsageError

    environment = {}
    for pair in env or []:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"--env {pair!r} is not NAME=VALUE")
        environment[key] = value
    body: dict[str, object] = {
        "command": command,
        "name": name,
        "tenant": tenant,
        "workload": workload,
        "gang": gang,
        "steps": steps,
        "weight": weight,
        "priority": priority,
        "deadline_s": deadline,
        "accelerators": accelerators.split(",") if accelerators else None,
        "memory_gib": memory,
        "retries": retries,
        "grace_s": grace,
        "time_limit_s": time_limit,
        "progress_pattern": progress,
        "environment": environment,
        "directory": str((directory or Path.cwd()).absolute()),
    }
    made = Client.found().post("/v1/jobs", body)
    if as_json:
        print_json(made)
    else:
        typer.echo(made["id"])


def jobs(
    *,
    state: Annotated[str | None, typer.Option(help="Only jobs in this state.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only jobs of this tenant.")] = None,
    as_json: Json = False,
) -> None:
    """List jobs, oldest first."""
    from fairlead.cli.output import print_json, table
    from fairlead.client import Client

    found = Client.found().get("/v1/jobs", state=state, tenant=tenant, limit=10_000)
    if as_json:
        print_json(found)
        return
    rows = [
        [
            job["id"],
            job["name"],
            job["tenant"],
            job["state"],
            job["accelerator"] or "",
            _progress(job),
            str(job["preemptions"]),
        ]
        for job in found
    ]
    heads = ["id", "name", "tenant", "state", "on", "steps", "preemptions"]
    table(f"{len(found)} jobs", heads, rows, figures=False)


def job(
    job_id: JobId,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended.")] = False,
    as_json: Json = False,
) -> None:
    """Show one job.

    With --wait the exit status says whether it finished.
    """
    from fairlead.cli.output import print_json, table
    from fairlead.client import Client

    server = Client.found()
    found = server.wait(job_id) if wait else server.job(job_id)
    if as_json:
        print_json(found)
    else:
        rows = [[key, _shown(value)] for key, value in found.items()]
        table(f"job {job_id}", ["", "value"], rows, figures=False)
    if wait and found["state"] != "finished":
        raise typer.Exit(1)


def logs(
    job_id: JobId,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it ends.")] = False,
    rank: Annotated[int, typer.Option(help="Which member of the gang.", min=0)] = 0,
) -> None:
    """Print what a job's processes printed."""
    import sys

    from fairlead.client import OVER, Client, ServerError, job_path

    server, after = Client.found(), 0
    while True:
        state = server.get(job_path(job_id))["state"]
        query = f"?rank={rank}&after={after}"
        status, headers, text = server.raw("GET", job_path(job_id, "logs") + query)
        if status != 200:
            raise ServerError(f"the server answered {status}")
        sys.stdout.buffer.write(text)
        sys.stdout.flush()
        after = int(headers.get("fairlead-next", after))
        if text:
            continue
        if not follow or state in OVER:
            return
        time.sleep(0.5)


def cancel(job_id: JobId, as_json: Json = False) -> None:
    """End a job for good."""
    _act(job_id, "cancel", as_json)


def suspend(job_id: JobId, as_json: Json = False) -> None:
    """Have a job checkpoint, leave its devices, and wait."""
    _act(job_id, "suspend", as_json)


def resume(job_id: JobId, as_json: Json = False) -> None:
    """Let a suspended job run again."""
    _act(job_id, "resume", as_json)


def _act(job_id: str, what: str, as_json: bool) -> None:
    from fairlead.cli.output import print_json
    from fairlead.client import Client, job_path

    found = Client.found().post(job_path(job_id, what))
    if as_json:
        print_json(found)
    else:
        typer.echo(f"{job_id}: {found['state']}")


def _progress(job: dict[str, Any]) -> str:
    done, total = job["steps_done"], job["total_steps"]
    return f"{done:.0f}/{total}" if total else f"{done:.0f}"


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "" if value is None else str(value)
