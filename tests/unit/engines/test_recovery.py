"""Recovery of leases after a restart: each is kept, stopped, forgotten or lost."""

from pathlib import Path

from fairlead.engines.base import Ended
from fairlead.engines.keeper import lease_dir
from fairlead.engines.keeper.lease_dir import lost_before_start
from fairlead.engines.shared.recovery import classify_leases, scheduler_tag


def test_each_lease_is_kept_stopped_forgotten_or_lost(
    tmp_path: Path,
) -> None:
    directories = {lease: tmp_path / str(lease) for lease in (1, 2, 3, 4)}
    for directory in directories.values():
        directory.mkdir()
    for lease in (2, 4):
        lease_dir.write_ended(directories[lease], Ended(lease, "left", 5.0))
    recovered = classify_leases(directories.values(), [1, 2, 9])
    assert recovered.wanted == [directories[1], directories[2]], "its end is reported, too"
    assert recovered.orphans == [directories[3]]
    assert recovered.ended == [4]
    assert recovered.never_started == [lost_before_start(9)]


def test_a_scheduler_keeps_its_unique_tag(tmp_path: Path) -> None:
    assert scheduler_tag(tmp_path / "a") == scheduler_tag(tmp_path / "a")
    assert scheduler_tag(tmp_path / "a") != scheduler_tag(tmp_path / "b")
