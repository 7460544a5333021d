"""Attacks on logs: the server reads only regular files of the directory's owner."""

import os
from pathlib import Path

import pytest
from tests.attacks.hostile import HOSTILE, NOBODY, as_root, within

from fairlead.engines.keeper.log_file import LogFile, end_of, read, read_leases


@pytest.mark.parametrize("name", ["5.0.log", "5.0.log.0000000000000007"])
def test_a_link_as_a_log_shows_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "admin.token").write_text("the token of the admin", encoding="ascii")
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / name).symlink_to(tmp_path / "admin.token")
    text, _ = within(lambda: read_leases(logs, 0, 0, 1000))
    assert text == b""
    assert within(lambda: read(logs / "5.0.log", 0, 1000))[1] == b""


@pytest.mark.parametrize("name", ["fifo", "directory", "endless", "link"])
def test_a_hostile_log_hides_no_other_log(tmp_path: Path, name: str) -> None:
    HOSTILE[name](tmp_path / "5.0.log")
    (tmp_path / "6.0.log").write_text("good", encoding="ascii")
    assert within(lambda: read_leases(tmp_path, 0, 0, 1000)) == (b"good", 4)
    assert within(lambda: end_of(tmp_path / "5.0.log")) == 0


def test_a_log_with_an_endless_offset_is_read_in_bounded_time(tmp_path: Path) -> None:
    (tmp_path / "5.0.log").write_text("a", encoding="ascii")
    (tmp_path / ("5.0.log." + "9" * 16)).write_text("b", encoding="ascii")
    (tmp_path / ("9" * 5000)[:200]).touch()
    text, _ = within(lambda: read_leases(tmp_path, 0, 0, 1000))
    assert text == b"ab"


def test_a_lease_number_of_5000_digits_is_no_log(tmp_path: Path) -> None:
    (tmp_path / ("9" * 240 + ".0.log")).write_text("a", encoding="ascii")
    (tmp_path / "5.0.log").write_text("b", encoding="ascii")
    assert within(lambda: read_leases(tmp_path, 0, 0, 1000)) == (b"b", 1)


@pytest.mark.parametrize("name", ["fifo", "directory", "endless", "link"])
def test_nothing_is_written_to_a_hostile_log(tmp_path: Path, name: str) -> None:
    HOSTILE[name](tmp_path / "5.0.log")
    with pytest.raises(OSError, match=r"5\.0\.log"):
        within(lambda: LogFile(tmp_path / "5.0.log"))
    target = tmp_path / "5.0.log.target"
    assert not target.exists() or target.read_text(encoding="ascii") == '{"steps": 1}'


@as_root
def test_a_linked_file_of_the_server_is_not_shown_to_a_tenant(tmp_path: Path) -> None:
    (tmp_path / "admin.token").write_text("the token of the admin", encoding="ascii")
    logs = tmp_path / "logs"
    logs.mkdir()
    os.chown(logs, NOBODY, NOBODY)
    os.link(tmp_path / "admin.token", logs / "5.0.log")
    (logs / "6.0.log").write_text("own", encoding="ascii")
    os.chown(logs / "6.0.log", NOBODY, NOBODY)
    assert within(lambda: read_leases(logs, 0, 0, 1000)) == (b"own", 3)


def test_a_link_as_the_directory_of_logs_shows_nothing(tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "5.0.log").write_text("output of another job", encoding="ascii")
    (tmp_path / "logs").symlink_to(tmp_path / "others")
    assert within(lambda: read_leases(tmp_path / "logs", 0, 0, 1000)) == (b"", 0)


def test_a_directory_of_logs_that_is_no_directory_shows_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "logs")
    assert within(lambda: read_leases(tmp_path / "logs", 0, 0, 1000)) == (b"", 0)
