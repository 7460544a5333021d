"""Jobs that ``--skip-impossible`` leaves out."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fairlead.model.errors import ImpossibleJobError

if TYPE_CHECKING:
    from rich.console import Console

    from fairlead.model.submission.skipped_job import SkippedJob

_MAX_SHOWN = 20


@contextmanager
def suggest_skipping() -> Iterator[None]:
    """Name the option in the error for a job that can never run."""
    try:
        yield
    except ImpossibleJobError as error:
        raise error.or_skip("--skip-impossible") from None


def print_skipped(skipped: "Sequence[SkippedJob]", console: "Console | None" = None) -> None:
    """Print the number of skipped jobs and the reason for each, by default as results."""
    from fairlead.cli.shared.output import pluralise, printable, results

    if not skipped:
        return
    out, listed = (results, ", all listed with --json") if console is None else (console, "")
    out.print(f"skipped {pluralise(len(skipped), 'job')} that can never run:", style="yellow")
    for job in skipped[:_MAX_SHOWN]:
        out.print(printable(f"  {job.id}: {job.reason}"), highlight=False, soft_wrap=True)
    if len(skipped) > _MAX_SHOWN:
        out.print(f"  and {len(skipped) - _MAX_SHOWN} more{listed}")
