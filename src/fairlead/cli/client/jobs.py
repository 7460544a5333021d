"""``fairlead jobs``, ``job``, ``logs``, ``cancel``, ``suspend``, ``resume``, ``priority``."""

import time
from typing import Annotated, Any

import typer

from fairlead.cli.shared.options import Json

_MAX_JOBS = 10_000
JobId = Annotated[str, typer.Argument(metavar="JOB", help="Job id.")]


def jobs(
    *,
    state: Annotated[
        str | None,
        typer.Option(
            help="Only jobs in a state: queued, running, suspended, finished, failed, cancelled."
        ),
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Only jobs of this tenant.")] = None,
    name: Annotated[
        str | None, typer.Option(help="Only jobs whose name matches a pattern such as 'sweep-*'.")
    ] = None,
    multijob: Annotated[
        str | None, typer.Option(help="Only jobs of this hyperparameter search.")
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(help="Maximum number of jobs, newest first; at most 10,000.", min=1),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Update the list as jobs change, until Ctrl-C."),
    ] = False,
    as_json: Json = False,
) -> None:
    """List jobs, oldest first, up to the newest 10,000.

    With --watch the list follows the server's events; if stdout is not a terminal, each changed
    list is printed below the last one. With --watch --json the events themselves are written,
    one JSON document per line.

    Example:  fairlead jobs --state running --watch
    """
    from fairlead.cli.client import watch as view
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import results
    from fairlead.client import Client

    server = Client.from_environment()
    filters = {"state": state, "tenant": tenant, "name": name, "multijob": multijob}

    def listed() -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = server.get(
            "/v1/jobs", **filters, limit=min(last or _MAX_JOBS, _MAX_JOBS), newest=True
        )
        return answer

    if watch and as_json:
        view.write_events(server)
    elif watch:
        view.follow(server, listed)
    elif as_json:
        print_json(listed())
    else:
        results.print(view.jobs_table(listed()))


def job(
    job_id: JobId,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the job has ended.")] = False,
    as_json: Json = False,
) -> None:
    """Show one job.

    With --wait the exit status is 0 if the job finished; on a terminal a bar shows its steps.

    Example:  fairlead job j1 --wait
    """
    from fairlead.cli.client import watch as view
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import table
    from fairlead.client import Client

    server = Client.from_environment()
    answer = view.wait(server, job_id) if wait else server.job(job_id)
    if as_json:
        print_json(answer)
    else:
        rows = [[key, _format_field(key, value)] for key, value in answer.items()]
        table(f"job {job_id}", ["", "value"], rows, figures=False)
    if wait and answer["state"] != "finished":
        raise typer.Exit(1)


def logs(
    job_id: JobId,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the output until the job ends.")
    ] = False,
    rank: Annotated[int, typer.Option(help="Rank in the gang.", min=0)] = 0,
) -> None:
    """Print the output of a job's processes, over all of its leases.

    Example:  fairlead logs j1 --follow
    """
    import sys

    from fairlead.client import TERMINAL_STATES, Client, job_path

    server, after = Client.from_environment(), 0
    while True:
        job = server.get(job_path(job_id))
        state = job["state"]
        query = f"?rank={rank}&after={after}"
        headers, text = server.text("GET", job_path(job_id, "logs") + query)
        sys.stdout.buffer.write(text)
        sys.stdout.flush()
        after = int(headers.get("fairlead-next", after))
        if text:
            continue
        if not follow or state in TERMINAL_STATES:
            if not after:
                gang = "alone" if job["gang"] == 1 else f"in a gang of {job['gang']}"
                typer.echo(f"no output from rank {rank} (the job runs {gang})", err=True)
            return
        time.sleep(0.5)


def cancel(
    job_id: JobId,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Kill its processes at once, without their grace.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Cancel a job; its checkpoints stay in DATA/jobs.

    Example:  fairlead cancel j1
    """
    _post_action(job_id, "cancel?force=true" if force else "cancel", as_json)


def suspend(job_id: JobId, as_json: Json = False) -> None:
    """Suspend a job: it checkpoints, releases its devices and waits for `fairlead resume`.

    Example:  fairlead suspend j1
    """
    _post_action(job_id, "suspend", as_json)


def resume(job_id: JobId, as_json: Json = False) -> None:
    """Resume a suspended job from its last checkpoint.

    Example:  fairlead resume j1
    """
    _post_action(job_id, "resume", as_json)


def priority(
    job_id: JobId,
    number: Annotated[int, typer.Argument(metavar="N", help="Priority; higher is served first.")],
    as_json: Json = False,
) -> None:
    """Set a job's priority.

    Tenants' priorities take precedence. The change takes effect in the next round.

    Example:  fairlead priority j7 10
    """
    from fairlead.cli.shared.json_output import print_json
    from fairlead.client import Client, job_path

    answer = Client.from_environment().ask("PATCH", job_path(job_id), {"priority": number})
    if as_json:
        print_json(answer)
    else:
        typer.echo(f"{job_id}: priority {answer['priority']}")


def _post_action(job_id: str, action: str, as_json: bool) -> None:
    from fairlead.cli.shared.json_output import print_json
    from fairlead.client import Client, job_path

    answer = Client.from_environment().post(job_path(job_id, action))
    if as_json:
        print_json(answer)
    else:
        typer.echo(f"{job_id}: {answer['state']}")


def _format_field(key: str, value: object) -> str:
    if isinstance(value, float) and key.endswith("_at"):
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))
    if isinstance(value, dict):
        return " ".join(f"{name}={entry}" for name, entry in value.items())
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "" if value is None else str(value)
