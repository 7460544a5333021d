"""Progress of a profile's jobs: a bar each on a terminal, elsewhere a line for each change."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from fairlead.cli.profile.on_server import Seen
from fairlead.cli.shared.output import messages
from fairlead.submitted_job import SubmittedJob


@contextmanager
def shown_progress(total: int) -> Iterator[Seen]:
    """Return the function to call with each accelerator's job; ``total`` are its steps."""
    if messages.is_terminal:
        with _bars(total) as seen:
            yield seen
    else:
        yield _lines()


@contextmanager
def _bars(total: int) -> Iterator[Seen]:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=messages) as bars:

        def seen(accelerator: str, job: SubmittedJob) -> None:
            if accelerator not in tasks:
                tasks[accelerator] = bars.add_task(accelerator, total=total)
            text = f"{accelerator}: {job.id} {job.state}"
            bars.update(tasks[accelerator], description=text, completed=job.steps_done)

        yield seen


def _lines() -> Seen:
    printed: dict[str, str] = {}

    def seen(accelerator: str, job: SubmittedJob) -> None:
        if printed.get(accelerator) != job.state:
            printed[accelerator] = job.state
            messages.print(f"{accelerator}: job {job.id} {job.state}")

    return seen
