"""``fairlead tune``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.shared.options import Json
from fairlead.model.errors import UsageError

if TYPE_CHECKING:  # loads the HTTP library
    from fairlead.model.submission.new_job import NewJob
    from fairlead.tuning.controller import SearchResult
    from fairlead.tuning.journal import Trial

_MAX_ROWS = 20


def tune(
    file: Annotated[Path, typer.Argument(help="Search file in YAML.", metavar="SEARCH")],
    command: Annotated[
        list[str] | None,
        typer.Argument(help="Command of a trial, with {lr} in place of the hyperparameter lr."),
    ] = None,
    *,
    journal: Annotated[
        Path | None,
        typer.Option(
            help="File that the search can be resumed from.", show_default="NAME.search.jsonl"
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the search of the journal.")
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Folder for search.html, a page of figures, and curves.json."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Search hyperparameters: run many trials as one job, and keep the best.

    Trials are ordinary jobs that report the metric with `run.report`. Together they are entitled
    to as much as one job. With the strategy `feedback` all trials share the devices until the
    most promising ones are known.

    Example:  fairlead tune search.yaml train.py --lr {lr}

    Example:  fairlead tune --resume search.yaml train.py --lr {lr}

    Example:  fairlead tune --plot out/digits search.yaml train.py --lr {lr}
    """
    from fairlead.cli.client.submit import with_search_path, with_snapshot
    from fairlead.client import Client
    from fairlead.files.search_file import read_search_file
    from fairlead.tuning.controller import Controller, check_job
    from fairlead.tuning.journal import Journal
    from fairlead.tuning.report import make_folder, write_report

    described = read_search_file(file)
    search = described.search
    job = _trial_job(file, described.job.values, command)
    check_job(search, job)
    server = Client.from_environment()
    job = with_search_path(server, job)
    if described.job.snapshot:
        (job,) = with_snapshot(server, [job])
    if plot is not None:
        make_folder(plot)
    path = journal or Path(f"{search.name}.search.jsonl")
    opened = (Journal.resume if resume else Journal.create)(path, search, job.command)
    controller = Controller(server, search, job, opened, on_change=_Progress(as_json).show)
    try:
        result = controller.run()
    except KeyboardInterrupt:
        if plot is not None:
            write_report(server, controller.result(), plot)
        typer.echo(
            f"The trials continue. Use --resume with the journal {path}, or cancel them with"
            f" `fairlead cancel --multijob {search.name}`.",
            err=True,
        )
        raise typer.Exit(130) from None
    finally:
        opened.close()
    written = [] if plot is None else write_report(server, result, plot)
    _print(result, written, as_json=as_json)


def _trial_job(file: Path, values: Any, command: list[str] | None) -> "NewJob":
    """Return the job of the search file with the command of the command line."""
    from fairlead.cli.client.submit import complete_job

    fields = dict(values)
    if "directory" in fields:
        fields["directory"] = str(file.parent / fields["directory"])
    words = command[1:] if command and command[0] == "--" else command
    if words:
        fields["command"] = tuple(words)
    if not fields.get("command"):
        raise UsageError("command: missing: expected a Python file, a program or job.command")
    return complete_job(fields)


class _Progress:
    """Prints a line for every trial that is submitted, and for every one that ends."""

    def __init__(self, as_json: bool) -> None:
        self._quiet = as_json
        self._shown: dict[int, str] = {}

    def show(self, trial: "Trial") -> None:
        status = trial.state or ("submitted" if trial.job else "")
        if self._quiet or self._shown.get(trial.number) == status:
            return
        self._shown[trial.number] = status
        value = "" if trial.best is None else f", best {trial.best:g}"
        stopped = f" ({trial.stopped})" if trial.stopped else ""
        typer.echo(f"trial {trial.number}, {trial.job}: {status}{stopped}{value}", err=True)


def _print(result: "SearchResult", written: Sequence[Path], *, as_json: bool) -> None:
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import table

    best = result.best
    if as_json:
        print_json(
            {
                "reason": result.reason,
                "device_hours": result.device_hours,
                "best": None if best is None else _row(best),
                "trials": [_row(trial) for trial in result.trials],
                "files": [str(path) for path in written],
            }
        )
        return
    sign = result.search.sign
    ranked = sorted(
        result.trials, key=lambda t: (t.best is None, -sign * (t.best or 0.0), t.number)
    )
    labels = list(result.search.space)
    rows = [
        [
            str(trial.number),
            trial.job or "–",
            *(str(trial.point[label]) for label in labels),
            "–" if trial.best is None else f"{trial.best:g}",
            f"{trial.steps:g}",
            trial.stopped or trial.state or "–",
        ]
        for trial in ranked[:_MAX_ROWS]
    ]
    title = f"{result.search.name}: {result.reason}, {result.device_hours:.2f} device hours"
    table(title, ["trial", "job", *labels, result.search.metric, "steps", "end"], rows)
    if len(ranked) > _MAX_ROWS:
        typer.echo(f"{len(ranked) - _MAX_ROWS} more trials: see --json")
    for path in written:
        typer.echo(path)


def _row(trial: "Trial") -> dict[str, Any]:
    return {
        "trial": trial.number,
        "job": trial.job,
        "values": dict(trial.point),
        "best": trial.best,
        "steps": trial.steps,
        "state": trial.state,
        "stopped": trial.stopped,
        "source": trial.source,
    }
