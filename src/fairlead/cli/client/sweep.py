"""Sweeps: from one job and the values of its variables to many jobs."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from fairlead.files.job_file import MAX_JOBS
from fairlead.model.errors import InputError

_WHERE = ("command", "name", "environment")


def expand(values: Mapping[str, Any], array: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """Return a job for every combination of the array's values.

    ``{lr}`` in the command, name and environment becomes the value of ``lr``, ``{index}`` the
    job's place in the sweep, which its processes also find in FAIRLEAD_ARRAY_INDEX.
    """
    if not array:
        return [dict(values)]
    count = 1
    for listed in array.values():
        count *= len(listed)
    if count > MAX_JOBS:
        raise InputError(f"{count:,} jobs are too many", fix=f"give at most {MAX_JOBS:,}")
    for label in array:
        if label != "index" and not _uses_variable(values, label):
            raise InputError(
                f"{{{label}}} stands nowhere, so all jobs would be the same",
                fix=f"write {{{label}}} in the command, name or environment",
                field="array",
            )
    found = []
    for i, chosen in enumerate(product(*array.values())):
        filled = {"index": str(i), **dict(zip(array, chosen, strict=True))}
        job = {key: _fill(value, filled) if key in _WHERE else value
               for key, value in values.items()}  # fmt: skip
        index = {"FAIRLEAD_ARRAY_INDEX": filled["index"]}
        job["environment"] = {**(job.get("environment") or {}), **index}
        found.append(job)
    return found


def _uses_variable(values: Mapping[str, Any], label: str) -> bool:
    return any(f"{{{label}}}" in str(values.get(key, "")) for key in _WHERE)


def _fill(value: Any, chosen: Mapping[str, str]) -> Any:
    """Replace the variables in all text of a value; other braces stay as they are."""
    if isinstance(value, str):
        for label, text in chosen.items():
            value = value.replace(f"{{{label}}}", text)
        return value
    if isinstance(value, Mapping):
        return {key: _fill(entry, chosen) for key, entry in value.items()}
    return [_fill(entry, chosen) for entry in value]
