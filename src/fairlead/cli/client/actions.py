"""``fairlead cancel``, ``suspend``, ``resume`` and ``priority``, for one job or many."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.shared.confirmation import confirm
from fairlead.cli.shared.options import Json
from fairlead.model.errors import InputError, UsageError
from fairlead.model.submission.batch import MAX_BATCH

if TYPE_CHECKING:
    from fairlead.client import Client
    from fairlead.submitted_job import SubmittedJob

_MAX_UNASKED = 10
"""maximum number of jobs that are changed without a question"""

JobIds = Annotated[list[str] | None, typer.Argument(metavar="JOB", help="Ids of the jobs.")]
Multijob = Annotated[str | None, typer.Option(help="Also the jobs of this hyperparameter search.")]
Pattern = Annotated[
    str | None,
    typer.Option("--name", help="Also the jobs whose name matches a pattern such as 'lr-*'."),
]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help=f"Do not ask before changing over {_MAX_UNASKED} jobs.")
]


def cancel(
    job_ids: JobIds = None,
    *,
    multijob: Multijob = None,
    name: Pattern = None,
    force: Annotated[
        bool, typer.Option("--force", help="Kill the processes at once, without their grace.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Cancel jobs; their checkpoints stay in DATA/jobs.

    Example:  fairlead cancel j1 j2

    Example:  fairlead cancel --name 'lr-0.1-*'
    """
    change = _Change("cancel", {"force": force})
    change.run(job_ids, multijob, name, yes=yes, as_json=as_json)


def suspend(
    job_ids: JobIds = None,
    *,
    multijob: Multijob = None,
    name: Pattern = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Suspend jobs: they checkpoint, release their devices and wait for `fairlead resume`.

    Example:  fairlead suspend j1 j2
    """
    change = _Change("suspend")
    change.run(job_ids, multijob, name, yes=yes, as_json=as_json)


def resume(
    job_ids: JobIds = None,
    *,
    multijob: Multijob = None,
    name: Pattern = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Resume suspended jobs from their last checkpoints.

    Example:  fairlead resume --multijob search
    """
    change = _Change("resume", state="suspended")
    change.run(job_ids, multijob, name, yes=yes, as_json=as_json)


def priority(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="JOB... N",
            help="Ids of the jobs, then the priority; a higher one is served first.",
        ),
    ],
    *,
    multijob: Multijob = None,
    name: Pattern = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Set the priority of jobs.

    Tenants' priorities take precedence. The change takes effect in the next round.

    Example:  fairlead priority j7 j8 10
    """
    *job_ids, last = words
    try:
        number = int(last)
    except ValueError:
        raise UsageError(f"N: {last!r}: expected a whole number after the jobs") from None
    change = _Change(
        "change",
        {"set": {"priority": number}},
        verb="priority",
        shown=lambda job: f"priority {job['priority']}",
    )
    change.run(job_ids, multijob, name, yes=yes, as_json=as_json)


class _Change:
    """One request for all selected jobs."""

    def __init__(
        self,
        action: str,
        settings: Mapping[str, object] | None = None,
        *,
        verb: str = "",
        state: str | None = None,
        shown: "Callable[[SubmittedJob], str]" = lambda job: job.state,
    ) -> None:
        """Change jobs; a pattern selects jobs in ``state``, or all that have not ended."""
        self._action, self._settings = action, settings or {}
        self._verb, self._state, self._shown = verb or action, state, shown

    def run(
        self,
        job_ids: Sequence[str] | None,
        multijob: str | None,
        name: str | None,
        *,
        yes: bool,
        as_json: bool,
    ) -> None:
        """Change all selected jobs; exit with 1 if the server rejected one of several changes."""
        from fairlead.cli.shared.json_output import print_json
        from fairlead.cli.shared.output import pluralise
        from fairlead.client import Client

        if not job_ids and multijob is None and name is None:
            raise UsageError("JOB: missing: expected ids, --multijob or --name")
        server = Client.from_environment()
        selected = self._select(server, job_ids or (), multijob, name)
        if len(selected) == 1 and job_ids:
            answer = self._change_one(server, selected[0])
            if as_json:
                print_json(answer)
            else:
                typer.echo(f"{answer.id}: {self._shown(answer)}")
            return
        if len(selected) > _MAX_UNASKED:
            confirm(f"{self._verb}: change {len(selected)} jobs?", yes=yes)
        changed, rejected = self._change_all(server, selected, as_json=as_json)
        if as_json:
            print_json(changed)
        else:
            counts = Counter(self._shown(job) for job in changed)
            summary = [f"{count} {state}" for state, count in counts.items()]
            summary += [f"{rejected} rejected"] if rejected else []
            typer.echo(f"{pluralise(len(selected), 'job')}: {', '.join(summary)}", err=True)
        if rejected:
            raise typer.Exit(1)

    def _select(
        self, server: "Client", job_ids: Sequence[str], multijob: str | None, name: str | None
    ) -> list[str]:
        """Return the ids of the jobs, each once; none is empty."""
        from fairlead.client import job_path

        for job_id in job_ids:
            job_path(job_id)
        selected = [*job_ids]
        if multijob is not None or name is not None:
            matching = server.jobs(
                state=self._state, multijob=multijob, name=name, unended=self._state is None
            )
            selected += [job.id for job in matching]
            if not selected:
                state = self._state or "unended"
                problem = f"no {state} job matches"
                raise InputError(problem, fix="see `fairlead jobs`", field="--multijob, --name")
        return list(dict.fromkeys(selected))

    def _change_one(self, server: "Client", job_id: str) -> "SubmittedJob":
        from fairlead.client import ServerError

        answer = server.change_all(self._action, [job_id], partial=True, **self._settings)
        for each in answer.rejected:
            raise ServerError(each.message, each.code)
        return answer.jobs[0]

    def _change_all(
        self, server: "Client", selected: Sequence[str], *, as_json: bool
    ) -> "tuple[list[SubmittedJob], int]":
        """Return the changed jobs and the number of rejected changes; print one line for each."""
        from fairlead.client import UnreachableError

        changed: list[SubmittedJob] = []
        rejected = 0
        for first in range(0, len(selected), MAX_BATCH):
            part = selected[first : first + MAX_BATCH]
            try:
                answer = server.change_all(self._action, part, partial=True, **self._settings)
            except UnreachableError:
                if changed:
                    typer.echo(f"changed {len(changed)} of {len(selected)} jobs", err=True)
                raise
            for each in answer.rejected:
                typer.echo(f"{each.id}: {each.message} [{each.code}]", err=True)
            if not as_json:
                typer.echo(
                    "".join(f"{job.id}: {self._shown(job)}\n" for job in answer.jobs), nl=False
                )
            changed += answer.jobs
            rejected += len(answer.rejected)
        return changed, rejected
