"""Live views of jobs: a table that follows the server's events, and a progress bar."""

import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fairlead.cli.shared.output import (
    messages,
    parts_of_table,
    pluralise,
    results,
)
from fairlead.client import Client, ServerError

_REFRESH_S = 2.0
"""maximum seconds between two updates of the table; progress causes no event"""
_SETTLE_S = 0.2
"""seconds to collect a burst of events, as at the end of a round"""
_MIN_LOST_S = 1.0
"""seconds of lost work that the list shows"""

Jobs = Sequence[dict[str, Any]]


def jobs_table(jobs: Jobs, *, metric: str | None = None, count: int | None = None) -> list[Table]:
    """Return jobs as a table, with a column for a metric; in parts on a narrow terminal.

    ``count``: number of jobs in the title, if only some are shown.
    """
    sorted_by = () if metric is None else (metric,)
    lost = ("work lost",) if any(job["lost_s"] >= _MIN_LOST_S for job in jobs) else ()
    heads = ["id", "name", "tenant", "state", "on", "steps", "preemptions", *lost, *sorted_by]
    rows = [
        [
            job["id"],
            job["name"],
            job["tenant"],
            job["state"],
            _held_devices(job),
            _progress(job),
            str(job["preemptions"]),
            *((_format_lost(job["lost_s"]),) if lost else ()),
            *(() if metric is None else (_format_metric(job["metrics"].get(metric)),)),
        ]
        for job in jobs
    ]
    title = pluralise(len(jobs) if count is None else count, "job")
    return parts_of_table(title, heads, rows, figures=False)


def _format_lost(lost_s: float) -> str:
    return f"{lost_s:.0f} s" if lost_s >= _MIN_LOST_S else ""


def _format_metric(value: float | None) -> str:
    return "–" if value is None else f"{value:.6g}"


def _held_devices(job: dict[str, Any]) -> str:
    """Return the devices that a job holds: ``k80``, ``2 k80``, or ``1 v100, 1 k80``."""
    held: dict[str, int] = job["accelerators_held"]
    if job["devices"] == 1:
        return "".join(held)
    return ", ".join(f"{count} {name}" for name, count in held.items())


def follow(server: Client, listed: Callable[[], Jobs], *, metric: str | None = None) -> None:
    """Show jobs until interrupted, updated after each of the server's events.

    If stdout is not a terminal, each table that differs from the last one is printed below it.
    """
    changed = threading.Event()
    threading.Thread(target=_listen, args=(server, changed), daemon=True).start()
    if not results.is_terminal:
        _print_changes(listed, changed, metric)
    max_rows = max(results.height - 6, 5)
    with Live(console=results, auto_refresh=False, screen=False) as shown:
        while True:
            jobs = listed()
            # Sorted jobs begin with the best, others end with the newest.
            part = jobs[-max_rows:] if metric is None else jobs[:max_rows]
            parts = jobs_table(part, metric=metric, count=len(jobs))
            shown.update(Group(*parts), refresh=True)
            _await_change(changed)


def _print_changes(
    listed: Callable[[], Jobs], changed: threading.Event, metric: str | None
) -> NoReturn:
    last: list[list[RenderableType]] | None = None
    while True:
        parts = jobs_table(listed(), metric=metric)
        cells = [list(column.cells) for part in parts for column in part.columns]
        if cells != last:
            results.print(*parts, sep="\n")
        last = cells
        _await_change(changed)


def _await_change(changed: threading.Event) -> None:
    if changed.wait(_REFRESH_S):
        time.sleep(_SETTLE_S)
        changed.clear()


def _listen(server: Client, changed: threading.Event) -> None:
    while True:
        try:
            for _ in server.events():
                changed.set()
        except ServerError:  # if it persists, the next listing raises it in the main thread
            time.sleep(_REFRESH_S)


def write_events(server: Client) -> None:
    """Write events as JSON, one per line, until the server stops."""
    for event in server.events():
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()


def wait(server: Client, job_id: str) -> dict[str, Any]:
    """Return a job when it has ended; on a terminal, show its progress meanwhile."""
    if not messages.is_terminal:
        return server.wait(job_id)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[steps]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[loss]}"),
    )
    with Progress(*columns, console=messages, transient=True) as bar:
        task = bar.add_task(job_id, total=None, steps="", loss="")

        def show(job: dict[str, Any]) -> None:
            on = f" on {_held_devices(job)}" if job["accelerator"] else ""
            metrics = " ".join(
                f"{key} {value:.4g}" for key, value in job["metrics"].items() if value is not None
            )
            bar.update(
                task,
                description=f"{job_id} {job['state']}{on}",
                completed=job["steps_done"],
                total=job["total_steps"],
                steps=_progress(job),
                loss=metrics,
            )

        return server.wait(job_id, seen=show)


def _progress(job: dict[str, Any]) -> str:
    done, total = job["steps_done"], job["total_steps"]
    return f"{done:.0f}/{total}" if total else f"{done:.0f}"
