"""A fixed seed of the fuzzer: no crash, no hang, no leaked device, no other tenant affected."""

from pathlib import Path

import pytest
from tests.attacks.fuzz.run import FuzzError, fuzz

from fairlead.engines.keeper import lease_dir


def test_two_thousand_hostile_files_and_requests_harm_nobody() -> None:
    assert fuzz(seed=1, cases=2000) >= 2000


def test_a_reader_that_crashes_is_reported_with_its_seed_and_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def careless(path: Path, _max_bytes: int = 0) -> None:
        raise KeyError(path.name)

    monkeypatch.setattr(lease_dir, "read_json", careless)
    with pytest.raises(FuzzError, match=r"KeyError(.|\n)*--seed 3 --only 'files:\d+'"):
        fuzz(seed=3, cases=100)
