"""``fairlead jobs``, ``job`` and ``logs``."""

import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from fairlead.cli.shared.options import Json
from fairlead.model.errors import UsageError
from fairlead.submitted_job import STATES

_MAX_JOBS = 10_000
JobId = Annotated[str, typer.Argument(metavar="JOB", help="Job id.")]


def jobs(
    *,
    state: Annotated[
        str | None,
        typer.Option(help=f"Only jobs in a state: {', '.join(STATES)}."),
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Only jobs of this tenant.")] = None,
    name: Annotated[
        str | None, typer.Option(help="Only jobs whose name matches a pattern such as 'sweep-*'.")
    ] = None,
    multijob: Annotated[
        str | None, typer.Option(help="Only jobs of this hyperparameter search.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", "-a", help="Also jobs that have ended.")] = False,
    last: Annotated[
        int | None,
        typer.Option(help="Maximum number of jobs, newest first; at most 10,000.", min=1),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC", help="Sort by the last value of a reported metric, lowest first."
        ),
    ] = None,
    reverse: Annotated[
        bool, typer.Option("--reverse", help="With --sort: highest first.")
    ] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Update the list as jobs change, until Ctrl-C."),
    ] = False,
    as_json: Json = False,
) -> None:
    """List the jobs that have not ended, oldest first, up to the newest 10,000.

    Jobs that have ended are listed with --all, and where --state, --name, --multijob or --sort
    selects them.

    With --watch the list follows the server's events; if stdout is not a terminal, each changed
    list is printed below the last one. With --watch --json the events themselves are written,
    one JSON document per line.

    Example:  fairlead jobs --state running --watch

    Example:  fairlead jobs --name 'sweep-*' --sort loss
    """
    from fairlead.cli.client import watch as view
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import results
    from fairlead.client import Client

    if state is not None and state not in STATES:
        raise UsageError(f"--state: unknown state {state!r}: expected one of {', '.join(STATES)}")
    server = Client.from_environment()
    filters = {"state": state, "tenant": tenant, "name": name, "multijob": multijob}
    unended = not every and (state, name, multijob, sort) == (None, None, None, None)

    def listed() -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = server.get(
            "/v1/jobs",
            **filters,
            unended=unended,
            limit=min(last or _MAX_JOBS, _MAX_JOBS),
            newest=True,
        )
        return answer if sort is None else _ranked(answer, sort, reverse=reverse)

    if watch and as_json:
        view.write_events(server)
        return
    rows = [] if watch and sort is None else listed()
    if sort is not None and rows:
        _warn_without_metric(rows, sort)
    if watch:
        view.follow(server, listed, metric=sort)
        return
    if as_json:
        print_json(rows)
    elif rows:
        results.print(*view.jobs_table(rows, metric=sort), sep="\n")
    else:
        ended = "; `fairlead jobs --all` lists those that have ended" if unended else ""
        typer.echo(f"no jobs{ended}")


def _warn_without_metric(jobs: Sequence[dict[str, Any]], metric: str) -> None:
    """Warn on stderr if no job has reported a metric, and name those that were reported."""
    from fairlead.cli.shared.output import messages, printable

    reported = sorted({name for job in jobs for name in job["metrics"]})
    if metric in reported:
        return
    fix = f"expected one of {', '.join(reported)}" if reported else "they have reported none"
    warning = printable(f"--sort: none of these jobs has reported a metric {metric!r}: {fix}")
    messages.print(warning, highlight=False, soft_wrap=True)


def _ranked(
    jobs: list[dict[str, Any]], metric: str, *, reverse: bool = False
) -> list[dict[str, Any]]:
    """Return jobs by the last value of a metric; those without one come last."""
    with_value = [job for job in jobs if job["metrics"].get(metric) is not None]
    without = [job for job in jobs if job["metrics"].get(metric) is None]
    with_value.sort(key=lambda job: job["metrics"][metric], reverse=reverse)
    return with_value + without


def job(
    job_id: JobId,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the job has ended.")] = False,
    as_json: Json = False,
) -> None:
    """Show one job: its state, last metrics, last leases and exit.

    With --wait the exit status is 0 if the job finished; on a terminal a bar shows its steps.

    Example:  fairlead job j1 --wait
    """
    from fairlead.cli.client import watch as view
    from fairlead.cli.client.job_page import print_job
    from fairlead.cli.shared.json_output import print_json
    from fairlead.client import Client

    server = Client.from_environment()
    answer = view.wait(server, job_id) if wait else server.job(job_id)
    if as_json:
        print_json(answer)
    else:
        print_job(server, answer)
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

    from fairlead.client import Client

    server, after = Client.from_environment(), 0
    while True:
        job = server.job(job_id)
        text, after = server.read_logs(job_id, rank=rank, after=after)
        sys.stdout.buffer.write(text)
        sys.stdout.flush()
        if text:
            continue
        if not follow or job.has_ended:
            if not after:
                ranks = "" if job["gang"] == 1 else f" to {job['gang'] - 1}"
                origin = f" from rank {rank} (its ranks: 0{ranks})" if rank or ranks else ""
                typer.echo(f"no output{origin}", err=True)
            return
        time.sleep(0.5)
