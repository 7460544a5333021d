"""Sweeps: many jobs from one job and the values of its variables."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

from fairlead.files.job_file import MAX_JOBS
from fairlead.model.errors import InputError
from fairlead.model.submission.batch import check_fields, divide_fields
from fairlead.model.submission.new_job import NewJob
from fairlead.model.submission.placeholders import fill, require_use, require_values

_MAX_PART = 3 << 20
"""bytes of jobs in one request; a server accepts 4 MiB by default"""


def expand(job: NewJob, array: Mapping[str, Sequence[str]]) -> list[NewJob]:
    """Return a job for every combination of the array's values.

    ``{lr}`` in the command, name and environment becomes the value of ``lr``, ``{index}`` the
    job's place in the sweep, which its processes also find in FAIRLEAD_ARRAY_INDEX.
    """
    known = {"index", *array} if array else set()
    require_values(job, known, field="array", source="--array {}=VALUE,…")
    if not array:
        return [job]
    count = prod(len(listed) for listed in array.values())
    if count > MAX_JOBS:
        raise InputError(
            f"{count:,} jobs", fix=f"expected at most {MAX_JOBS:,} combinations", field="array"
        )
    require_use(job, [label for label in array if label != "index"], field="array")
    jobs = []
    for i, values in enumerate(product(*array.values())):
        filled = fill(job, {"index": str(i), **dict(zip(array, values, strict=True))})
        index = {"FAIRLEAD_ARRAY_INDEX": str(i)}
        jobs.append(replace(filled, environment={**filled.environment, **index}))
    return jobs


def parts_of(messages: Sequence[dict[str, Any]]) -> Iterator[Sequence[dict[str, Any]]]:
    """Yield the messages of jobs in parts that fit into a request: in most cases all at once."""
    if len(messages) == 1 or _fits(messages):
        yield messages
    else:
        middle = len(messages) // 2
        yield from parts_of(messages[:middle])
        yield from parts_of(messages[middle:])


def _fits(messages: Sequence[dict[str, Any]]) -> bool:
    common, own = divide_fields(messages)
    try:
        check_fields(common, own)
    except InputError:
        return False
    return len(json.dumps(common)) + len(json.dumps(own)) <= _MAX_PART
