"""``fairlead jobs``, ``job``, ``logs``, ``cancel``, ``suspend``, ``resume``, ``priority``."""

import time
from typing import Annotated, Any

import typer

from fairlead.cli.shared.options import Json

_MOST = 10_000
JobId = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]


def jobs(
    *,
    state: Annotated[
        str | None,
        typer.Option(help="Only these: queued, running, suspended, finished, failed, cancelled."),
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Only jobs of this tenant.")] = None,
    name: Annotated[
        str | None, typer.Option(help="Only jobs with such a name, e.g. 'sweep-*'.")
    ] = None,
    multijob: Annotated[str | None, typer.Option(help="Only tries of this search.")] = None,
    last: Annotated[
        int | None, typer.Option(help="Only so many newest ones, 10,000 at most.", min=1)
    ] = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Go on showing them as they change, until Ctrl-C."),
    ] = False,
    as_json: Json = False,
) -> None:
    """List jobs, oldest first; of very many the newest 10,000.

    With --watch the list follows the server's events, and is printed anew when it has changed
    where stdout is no terminal; with --json, too, these events are written, one JSON document a
    line.

    Example:  fairlead jobs --state running --watch
    """
    from fairlead.cli.client import watch as view
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import results
    from fairlead.client import Client

    server = Client.found()
    wanted = {"state": state, "tenant": tenant, "name": name, "multijob": multijob}

    def listed() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = server.get(
            "/v1/jobs", **wanted, limit=min(last or _MOST, _MOST), newest=True
        )
        return found

    if watch and as_json:
        view.write_events(server)
    elif watch:
        view.follow(server, listed)
    elif as_json:
        print_json(listed())
    else:
        results.print(view.drawn(listed()))


def job(
    job_id: JobId,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended.")] = False,
    as_json: Json = False,
) -> None:
    """Show one job.

    With --wait the exit status says whether it finished; on a terminal a bar shows its steps.

    Example:  fairlead job j1 --wait
    """
    from fairlead.cli.client import watch as view
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import table
    from fairlead.client import Client

    server = Client.found()
    found = view.wait(server, job_id) if wait else server.job(job_id)
    if as_json:
        print_json(found)
    else:
        rows = [[key, _format_field(key, value)] for key, value in found.items()]
        table(f"job {job_id}", ["", "value"], rows, figures=False)
    if wait and found["state"] != "finished":
        raise typer.Exit(1)


def logs(
    job_id: JobId,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it ends.")] = False,
    rank: Annotated[int, typer.Option(help="Which member of the gang.", min=0)] = 0,
) -> None:
    """Print what a job's processes printed, of all its leases.

    Example:  fairlead logs j1 --follow
    """
    import sys

    from fairlead.client import OVER, Client, job_path

    server, after = Client.found(), 0
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
        if not follow or state in OVER:
            if not after:
                gang = "alone" if job["gang"] == 1 else f"in a gang of {job['gang']}"
                typer.echo(f"rank {rank} has printed nothing (the job runs {gang})", err=True)
            return
        time.sleep(0.5)


def cancel(job_id: JobId, as_json: Json = False) -> None:
    """End a job for good; what it has checkpointed stays in DATA/jobs.

    Example:  fairlead cancel j1
    """
    _act(job_id, "cancel", as_json)


def suspend(job_id: JobId, as_json: Json = False) -> None:
    """Have a job checkpoint, leave its devices, and wait until it is resumed.

    Example:  fairlead suspend j1
    """
    _act(job_id, "suspend", as_json)


def resume(job_id: JobId, as_json: Json = False) -> None:
    """Let a suspended job run again, from its last checkpoint.

    Example:  fairlead resume j1
    """
    _act(job_id, "resume", as_json)


def priority(
    job_id: JobId,
    number: Annotated[int, typer.Argument(metavar="N", help="Higher ones come first.")],
    as_json: Json = False,
) -> None:
    """Let a job come before others with a lower number.

    Tenants' own priorities count first. It holds from the next round on.

    Example:  fairlead priority j7 10
    """
    from fairlead.cli.shared.json_output import print_json
    from fairlead.client import Client, job_path

    found = Client.found().ask("PATCH", job_path(job_id), {"priority": number})
    if as_json:
        print_json(found)
    else:
        typer.echo(f"{job_id}: priority {found['priority']}")


def _act(job_id: str, what: str, as_json: bool) -> None:
    from fairlead.cli.shared.json_output import print_json
    from fairlead.client import Client, job_path

    found = Client.found().post(job_path(job_id, what))
    if as_json:
        print_json(found)
    else:
        typer.echo(f"{job_id}: {found['state']}")


def _format_field(key: str, value: object) -> str:
    if isinstance(value, float) and key.endswith("_at"):
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))
    if isinstance(value, dict):
        return " ".join(f"{name}={one}" for name, one in value.items())
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "" if value is None else str(value)
