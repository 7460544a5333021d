"""State of new members of a gang: a job of the same user may write anything there."""

import json
from pathlib import Path

import pytest

from fairlead.engines.keeper.growth import files


def test_the_state_of_a_request_is_read_for_that_request_only(tmp_path: Path) -> None:
    files.write_state(tmp_path, 7, files.READY, 1.5)
    assert files.read_state(tmp_path, 7) == (files.READY, 1.5)
    assert files.read_state(tmp_path, 8) == ("", 0.0)


@pytest.mark.parametrize("gib", [float("nan"), -1.0, 10**400, True, "1", None])
def test_an_impossible_size_is_not_taken_for_the_memory_of_new_members(
    tmp_path: Path, gib: object
) -> None:
    content = {"request": 7, "state": files.READY, "gib": gib}
    (tmp_path / "newcomers.json").write_text(json.dumps(content))
    assert files.read_state(tmp_path, 7) == ("", 0.0)
