"""Python API of searches: ``fairlead.tune``."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairlead.client import Client
from fairlead.model.submission.new_job import NewJob
from fairlead.model.submission.search import Choices, Parameter, Range, Search, Value
from fairlead.tuning.controller import POLL_S, Controller, SearchResult
from fairlead.tuning.journal import Journal

Space = Mapping[str, Parameter | Sequence[Value]]


def tune(
    command: Sequence[str],
    *,
    name: str,
    space: Space,
    metric: str,
    job: Mapping[str, Any] | None = None,
    journal: str | Path | None = None,
    resume: bool = False,
    client: Client | None = None,
    poll_s: float = POLL_S,
    **search: Any,
) -> SearchResult:
    """Search hyperparameters with jobs on a server; return the trials and the best of them.

    ``{lr}`` in the command becomes the value of the hyperparameter ``lr``; ``space`` has a list of
    values or a `Range` for each. ``job`` are the fields of the trials' jobs, ``search`` the other
    fields of a `Search`. With ``resume`` the search of the journal (default:
    ``NAME.search.jsonl``) continues.
    """
    described = Search(
        name=name,
        metric=metric,
        space={
            label: values if isinstance(values, Choices | Range) else Choices(tuple(values))
            for label, values in space.items()
        },
        **search,
    )
    words = tuple(command)
    if words and words[0].endswith(".py"):
        words = (sys.executable, *words)
    trial = NewJob(**{"directory": os.getcwd(), **(job or {}), "command": words})
    server = client if client is not None else Client.from_environment()
    path = Path(journal or f"{name}.search.jsonl")
    opened = (Journal.resume if resume else Journal.create)(path, described, words)
    try:
        return Controller(server, described, trial, opened, poll_s=poll_s).run()
    finally:
        opened.close()
