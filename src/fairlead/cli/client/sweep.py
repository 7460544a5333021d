"""Sweeps: many jobs from one job and the values of its variables."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from fairlead.files.job_file import MAX_JOBS
from fairlead.model.errors import InputError
from fairlead.model.submission.new_job import NewJob

_PLACEHOLDER = re.compile(r"(?<![{$])\{([A-Za-z_]\w*)\}")
_SCRIPT = re.compile(r"[\s'\"();$]")


def expand(job: NewJob, array: Mapping[str, Sequence[str]]) -> list[NewJob]:
    """Return a job for every combination of the array's values.

    ``{lr}`` in the command, name and environment becomes the value of ``lr``, ``{index}`` the
    job's place in the sweep, which its processes also find in FAIRLEAD_ARRAY_INDEX.
    """
    _require_values(job, {"index", *array} if array else set())
    if not array:
        return [job]
    count = prod(len(listed) for listed in array.values())
    if count > MAX_JOBS:
        raise InputError(
            f"{count:,} jobs", fix=f"expected at most {MAX_JOBS:,} combinations", field="array"
        )
    for label in array:
        if label != "index" and not _uses_variable(job, label):
            raise InputError(
                f"{{{label}}} is not used, so all jobs would be the same",
                fix=f"expected {{{label}}} in the command, name or environment",
                field="array",
            )
    jobs = []
    for i, values in enumerate(product(*array.values())):
        jobs.append(_filled(job, {"index": str(i), **dict(zip(array, values, strict=True))}))
    return jobs


def _require_values(job: NewJob, known: Collection[str]) -> None:
    """Raise InputError for a placeholder such as ``{lr}`` that has no value.

    Braces in a word with spaces, quotes or parentheses belong to a script, as in ``sh -c``.
    """
    for word in (*job.command, job.name, *job.environment.values()):
        if _SCRIPT.search(word):
            continue
        for label in _PLACEHOLDER.findall(word):
            if label not in known:
                raise InputError(
                    f"{{{label}}} has no value",
                    fix=f"expected --array {label}=VALUE,… or no such braces in {word!r}",
                    field="array",
                )


def _uses_variable(job: NewJob, label: str) -> bool:
    texts = (*job.command, job.name, *job.environment.values())
    return any(f"{{{label}}}" in text for text in texts)


def _filled(job: NewJob, values: Mapping[str, str]) -> NewJob:
    environment = {name: _fill(text, values) for name, text in job.environment.items()}
    return replace(
        job,
        command=tuple(_fill(word, values) for word in job.command),
        name=_fill(job.name, values),
        environment={**environment, "FAIRLEAD_ARRAY_INDEX": values["index"]},
    )


def _fill(text: str, values: Mapping[str, str]) -> str:
    """Replace the variables in a text; other braces stay."""
    for label, value in values.items():
        text = text.replace(f"{{{label}}}", value)
    return text
