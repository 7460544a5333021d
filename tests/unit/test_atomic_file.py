"""Replacement of files: atomic, durable on request, private on request."""

import os
import stat
from pathlib import Path

import pytest

from fairlead.atomic_file import replace_file, replace_text


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the paths that were synced."""
    paths: list[str] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        paths.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    return paths


def test_content_is_replaced_and_no_temporary_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    replace_file(path, b"old")
    replace_file(path, b"n", b"ew")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["state.json"]


def test_content_is_synced_before_the_rename_and_the_directory_after_it(
    tmp_path: Path, synced: list[str]
) -> None:
    path = tmp_path / "state.json"
    temporary = f"{path}.{os.getpid()}.tmp"
    replace_file(path, b"x", before_rename=lambda: synced.append("rename"))
    assert synced == [temporary, "rename", str(tmp_path)]


def test_syncs_can_be_left_out(tmp_path: Path, synced: list[str]) -> None:
    path = tmp_path / "state.json"
    replace_file(path, b"x", sync_directory=False)
    assert synced == [f"{path}.{os.getpid()}.tmp"]
    replace_text(path, "y", durable=False)
    assert len(synced) == 1


def test_a_failed_replacement_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    replace_text(path, "old")

    def full(_: int) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        replace_text(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["state.json"]


def test_a_secret_is_never_readable_by_others(tmp_path: Path) -> None:
    path = tmp_path / "admin.token"
    modes: list[int] = []

    def record() -> None:
        modes.append(stat.S_IMODE(os.stat(f"{path}.{os.getpid()}.tmp").st_mode))

    replace_file(path, b"secret", mode=0o600, before_rename=record)
    assert modes == [0o600]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_relative_path_is_replaced_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    replace_text("name", "ü")
    assert (tmp_path / "name").read_text(encoding="utf-8") == "ü"
