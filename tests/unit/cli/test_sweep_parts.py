"""Sweeps are sent in as few requests as a server accepts."""

from typing import Any

import pytest

from fairlead.cli.client.sweep import parts_of
from fairlead.model.submission.batch import MAX_WAITS, check_fields, divide_fields


def sizes(messages: list[dict[str, Any]]) -> list[int]:
    """Return the sizes of the parts, each of which a server accepts."""
    parts = list(parts_of(messages))
    assert [message for part in parts for message in part] == messages
    for part in parts:
        check_fields(*divide_fields(part))
    return [len(part) for part in parts]


def test_a_sweep_is_one_request() -> None:
    environment = {"PATH": "/usr/bin" * 100}
    messages = [{"command": ["true", str(i)], "environment": environment} for i in range(10_000)]
    assert sizes(messages) == [10_000]


def test_a_sweep_whose_jobs_wait_for_many_others_is_divided() -> None:
    messages = [{"command": [str(i)], "after": ["a", "b", "c"]} for i in range(10_000)]
    assert sizes(messages) == [5000, 5000]
    alone = {"command": ["x"], "after": ["a"] * MAX_WAITS}
    assert sizes([alone, alone, alone]) == [1, 1, 1]


@pytest.mark.parametrize("size", [4_000, 6_516, 8_995])
def test_values_that_only_a_part_has_in_common_count_for_each_of_its_jobs(size: int) -> None:
    messages = [
        {
            "command": ["true", f"--option={'v' * 60}{i // 3000}", str(i)],
            "name": f"sweep-{i // 3000}",
            "environment": {"A": "x" * size, "OUTER": "v" * 60 + str(i // 3000), "I": str(i)},
        }
        for i in range(9000)
    ]
    assert sum(sizes(messages)) == 9000
