"""Leases that a scheduler finds after a restart are each dealt with in one way."""

from pathlib import Path

from fairlead.engines.base import Ended
from fairlead.engines.keeper import lease_dir
from fairlead.engines.shared.recovery import classify_leases, lost_before_start, tag


def test_each_lease_is_kept_stopped_forgotten_or_told_never_to_have_started(
    tmp_path: Path,
) -> None:
    made = {lease: tmp_path / str(lease) for lease in (1, 2, 3, 4)}
    for directory in made.values():
        directory.mkdir()
    for lease in (2, 4):
        lease_dir.write_ended(made[lease], Ended(lease, "left", 5.0))
    found = classify_leases(made.values(), [1, 2, 9])
    assert found.wanted == [made[1], made[2]], "its end is told, too"
    assert found.strays == [made[3]]
    assert found.over == [4]
    assert found.never == [lost_before_start(9)]


def test_a_scheduler_s_tag_is_its_own_and_lasts(tmp_path: Path) -> None:
    assert tag(tmp_path / "a") == tag(tmp_path / "a")
    assert tag(tmp_path / "a") != tag(tmp_path / "b")
