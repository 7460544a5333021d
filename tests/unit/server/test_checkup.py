"""The doctor's advice about a data directory."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.engines.shared.checkup.findings import Finding
from fairlead.server.checkup import run_checkup


def finding(data: Path) -> Finding:
    """Return the finding about a data directory of a machine that rehearses devices."""
    (finding,) = (each for each in run_checkup(data) if each.what == "data directory")
    return finding


@pytest.fixture(autouse=True)
def unwritable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rehearse devices, and deny all access; for root only a read-only file system does so."""
    monkeypatch.setenv("FAIRLEAD_ENGINE", "rehearsal")
    monkeypatch.setenv("FAIRLEAD_EMULATE", "v100=1")
    access = os.access

    def denied(path: Any, mode: int, **more: bool) -> bool:
        return not mode & os.W_OK and access(path, mode, **more)

    monkeypatch.setattr(os, "access", denied)


def make_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = dict.fromkeys(("f_bavail", "f_bfree", "f_blocks"), 1 << 30)
    made = SimpleNamespace(f_flag=os.ST_RDONLY, f_frsize=4096, **counts)
    monkeypatch.setattr(os, "statvfs", lambda _: made)


def test_a_read_only_file_system_is_named_instead_of_an_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_read_only(monkeypatch)
    for data in (tmp_path, tmp_path / "missing"):
        wrong = finding(data)
        assert wrong.level == "wrong"
        assert "is read-only" in wrong.found
        assert "remount,rw" in wrong.fix
        assert "--data or FAIRLEAD_DATA" in wrong.fix
        assert "chown" not in wrong.fix


def test_a_directory_of_another_user_needs_an_owner(tmp_path: Path) -> None:
    assert finding(tmp_path).fix == f"chown -R $USER {tmp_path}"
    assert finding(tmp_path / "missing").fix.startswith("set --data or FAIRLEAD_DATA")
