"""Many jobs in one message: dividing and combining their fields loses nothing."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.errors import InputError
from fairlead.model.submission.batch import (
    MAX_BATCH,
    MAX_WAITS,
    check_fields,
    check_size,
    combine_fields,
    divide_fields,
)

NAMES = st.sampled_from(["name", "gang", "environment", "steps"])
VARIABLES = st.dictionaries(st.sampled_from("ABC"), st.sampled_from("12"))


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    fields = draw(st.dictionaries(NAMES, st.integers(0, 2)))
    return fields | {"environment": draw(VARIABLES)} if "environment" in fields else fields


@given(st.lists(messages(), min_size=1, max_size=5))
def test_combined_fields_are_those_that_were_divided(jobs: list[dict[str, Any]]) -> None:
    common, own = divide_fields(jobs)
    combined = [combine_fields(common, job) for job in own]
    assert [_plain(job) for job in combined] == [_plain(job) for job in jobs]


def _plain(job: dict[str, Any]) -> dict[str, Any]:
    """Return a job without an empty environment, which equals none."""
    return {key: value for key, value in job.items() if value != {}}


def test_common_fields_are_sent_once() -> None:
    jobs = [
        {"command": ["a", i], "workload": "m", "environment": {"PATH": "/bin", "I": i}}
        for i in range(3)
    ]
    common, own = divide_fields(jobs)
    assert common == {"workload": "m", "environment": {"PATH": "/bin"}}
    assert own[1] == {"command": ["a", 1], "environment": {"I": 1}}


@pytest.mark.parametrize("count", [0, MAX_BATCH + 1])
def test_a_batch_has_a_size_limit(count: int) -> None:
    check_size(MAX_BATCH)
    with pytest.raises(InputError, match=r"jobs: .* jobs: expected from 1 to 10,000"):
        check_size(count)


def test_the_jobs_of_a_request_together_wait_for_a_limited_number() -> None:
    half = ["x"] * (MAX_WAITS // 4)
    jobs: list[dict[str, Any]] = [{}, {"after": half}]
    check_fields({"after": half, "after_any": half}, jobs)
    with pytest.raises(InputError, match=r"jobs wait for 20001 others: expected at most 20000"):
        check_fields({"after": half, "after_any": half}, [*jobs[1:], {"after": [*half, "y"]}])


def test_common_fields_count_once_for_each_job() -> None:
    common = {"name": "\ud800" * (32 << 10) + "\n"}
    check_fields(common, [{}] * 100)
    with pytest.raises(InputError, match=r"^common: 196,622 bytes: expected at most 3,355 bytes"):
        check_fields(common, [{}] * MAX_BATCH)
