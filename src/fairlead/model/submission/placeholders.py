"""Placeholders such as ``{lr}`` in a job's command, name and environment."""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from fairlead.model.errors import InputError
from fairlead.model.submission.new_job import NewJob

_PLACEHOLDER = re.compile(r"(?<![{$])\{([A-Za-z_]\w*)\}")
_SCRIPT = re.compile(r"[\s'\"();$]")


def require_values(job: NewJob, known: Collection[str], *, field: str, source: str) -> None:
    """Raise InputError for a placeholder that has no value.

    ``source`` describes the values for the error, with ``{}`` in place of the name. Braces in a
    word with spaces, quotes or parentheses belong to a script, as in ``sh -c``.
    """
    for word in _texts(job):
        if _SCRIPT.search(word):
            continue
        for label in _PLACEHOLDER.findall(word):
            if label not in known:
                raise InputError(
                    f"{{{label}}} has no value",
                    fix=f"expected {source.format(label)} or no such braces in {word!r}",
                    field=field,
                )


def require_use(job: NewJob, labels: Collection[str], *, field: str) -> None:
    """Raise InputError for a variable that the job does not use, so that all would be the same."""
    for label in labels:
        if not any(f"{{{label}}}" in text for text in _texts(job)):
            raise InputError(
                f"{{{label}}} is not used, so all jobs would be the same",
                fix=f"expected {{{label}}} in the command, name or environment",
                field=field,
            )


def fill(job: NewJob, values: Mapping[str, str]) -> NewJob:
    """Return the job with its placeholders replaced by values; other braces stay."""
    return replace(
        job,
        command=tuple(_filled(word, values) for word in job.command),
        name=_filled(job.name, values),
        environment={name: _filled(text, values) for name, text in job.environment.items()},
    )


def _texts(job: NewJob) -> tuple[str, ...]:
    return (*job.command, job.name, *job.environment.values())


def _filled(text: str, values: Mapping[str, str]) -> str:
    for label, value in values.items():
        text = text.replace(f"{{{label}}}", value)
    return text
