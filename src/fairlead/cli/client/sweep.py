"""Sweeps: many jobs from one job and the values of its variables."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from fairlead.files.job_file import MAX_JOBS
from fairlead.model.errors import InputError
from fairlead.model.submission.new_job import NewJob
from fairlead.model.submission.placeholders import fill, require_use, require_values


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
