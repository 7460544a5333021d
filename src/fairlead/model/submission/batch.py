"""Many jobs in one message: the fields that all have in common are sent once."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fairlead.model.errors import InputError

MAX_BATCH = 10_000
"""jobs of one request"""
MAX_COMMON_BYTES = 32 * 2**20
"""bytes of the common fields of one request, counted once for each job"""
MAX_WAITS = 20_000
"""jobs that all jobs of one request together wait for"""
_ENVIRONMENT = "environment"
"""the one field that is combined: its variables"""


def check_size(count: int) -> None:
    """Raise InputError unless one request can hold this number of jobs."""
    if not 1 <= count <= MAX_BATCH:
        fix = f"expected from 1 to {MAX_BATCH:,}"
        raise InputError(f"{count:,} jobs", fix=fix, field="jobs")


def check_fields(common: Mapping[str, Any], jobs: Sequence[Mapping[str, Any]]) -> None:
    """Raise InputError if one request is too much work for its size.

    Common fields count once for each job, and so do the jobs that each waits for.
    """
    size = len(json.dumps(common))
    if size * len(jobs) > MAX_COMMON_BYTES:
        most = MAX_COMMON_BYTES // len(jobs)
        fix = f"expected at most {most:,} bytes for {len(jobs):,} jobs: send fewer at a time"
        raise InputError(f"{size:,} bytes", fix=fix, field="common")
    waits = sum(
        _length(job.get(name, common.get(name))) for job in jobs for name in ("after", "after_any")
    )
    if waits > MAX_WAITS:
        fix = f"expected at most {MAX_WAITS} in one request: send fewer at a time"
        raise InputError(f"jobs wait for {waits} others", fix=fix, field="jobs")


def _length(value: object) -> int:
    return len(value) if isinstance(value, list | tuple) else int(value is not None)


def divide_fields(
    jobs: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the fields that all jobs have in common, and the other fields of each job."""
    common = _common(jobs)
    common.pop(_ENVIRONMENT, None)
    environments = [job.get(_ENVIRONMENT, {}) for job in jobs]
    is_usable = all(isinstance(each, Mapping) for each in environments)  # else the server says so
    variables = _common(environments) if is_usable else {}
    own = [{key: value for key, value in job.items() if key not in common} for job in jobs]
    if variables:
        common[_ENVIRONMENT] = variables
        for job in own:
            rest = {k: v for k, v in job.pop(_ENVIRONMENT).items() if k not in variables}
            if rest:
                job[_ENVIRONMENT] = rest
    return common, own


def combine_fields(common: Mapping[str, Any], job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job's own fields and the common ones; its own environment variables win."""
    combined = {**common, **job}
    parts = common.get(_ENVIRONMENT), job.get(_ENVIRONMENT)
    if isinstance(parts[0], dict) and isinstance(parts[1], dict):
        combined[_ENVIRONMENT] = {**parts[0], **parts[1]}
    return combined


def _common(mappings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    first, *others = mappings
    return {
        key: value
        for key, value in first.items()
        if all(key in other and other[key] == value for other in others)
    }
