"""Data directories that other users could change are refused, with the command that mends them."""

import os
from pathlib import Path

import pytest
from tests.attacks.hostile import as_root

from fairlead.model.errors import InputError
from fairlead.server.config.loading import load_settings
from fairlead.server.config.settings import ServeSettings
from fairlead.server.data_dir import open_store

FOREIGN = 54321


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir(mode=0o700)
    open_store(ServeSettings(data=made)).close()
    (made / "admin.token").write_text("fl_1_2")
    (made / "admin.token").chmod(0o600)
    return made


def _refusal(data: Path) -> str:
    with pytest.raises(InputError) as caught:
        open_store(ServeSettings(data=data))
    return str(caught.value)


def test_private_directories_are_accepted_even_in_a_sticky_one(data: Path) -> None:
    for mode in (0o700, 0o711, 0o750, 0o755):
        data.chmod(mode)
        open_store(ServeSettings(data=data)).close()
    data.parent.chmod(0o1777)
    open_store(ServeSettings(data=data)).close()


def test_a_world_writable_directory_is_refused_with_the_fix(data: Path) -> None:
    data.chmod(0o777)
    answer = _refusal(data)
    assert answer == f"data: {data} is writable by other users: run: chmod 700 {data}"
    data.chmod(0o700)
    data.parent.chmod(0o777)
    assert f"because they can write to {data.parent}: run: chmod go-w {data.parent}" in _refusal(
        data
    )
    data.parent.chmod(0o700)
    (data / "jobs").chmod(0o707)
    assert f"run: chmod 700 {data / 'jobs'}" in _refusal(data)


@pytest.mark.parametrize(
    ("name", "mode", "field"),
    [
        ("admin.token", 0o602, "data"),
        ("admin.token", 0o604, "data"),
        ("admin.token", 0o640, "data"),
        ("fairlead.db", 0o602, "database"),
    ],
)
def test_files_that_others_can_write_and_secrets_they_can_read_are_refused(
    data: Path, name: str, mode: int, field: str
) -> None:
    (data / name).chmod(mode)
    answer = _refusal(data)
    assert answer.startswith(f"{field}: {data / name} is ")
    assert answer.endswith(f"run: chmod 600 {data / name}")


@as_root
@pytest.mark.parametrize("name", [".", "admin.token", "fairlead.db", "jobs"])
def test_files_of_another_user_are_refused(data: Path, name: str) -> None:
    os.chown(data / name, FOREIGN, 0)
    answer = _refusal(data)
    assert f"belongs to another user (uid {FOREIGN}): run: chown -R 0 {data / name}" in answer


@as_root
def test_group_writable_is_fine_for_the_own_group_only(data: Path) -> None:
    data.chmod(0o770)
    open_store(ServeSettings(data=data)).close()
    os.chown(data, 0, FOREIGN)
    assert "is writable by other users" in _refusal(data)


URL = "postgresql+psycopg://fairlead@db/fairlead"


def test_the_database_password_comes_from_a_private_file_or_the_environment(
    tmp_path: Path,
) -> None:
    secret = tmp_path / "password"
    secret.write_text("hunter2\n")
    flags = {"data": tmp_path / "data", "database": URL, "database_password_file": secret}
    secret.chmod(0o640)
    with pytest.raises(InputError, match=f"run: chmod 600 {secret}"):
        load_settings(flags, {})
    secret.chmod(0o600)
    variable = {"FAIRLEAD_DATABASE_PASSWORD": "hunter2"}
    for effective in (
        load_settings(flags, {}),
        load_settings({**flags, "database_password_file": None}, variable),
    ):
        settings = effective.settings
        assert settings.store_url.password == "hunter2"
        shown = [
            repr(settings),
            str(settings.store_url),
            *(str(v.shown) for v in effective.values),
        ]
        assert not any("hunter2" in text for text in shown)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"database": "postgresql+psycopg://u:hunter2@db/x"}, "password on the command line"),
        ({"database_password_file": Path("missing"), "database": URL}, "cannot read missing"),
        ({"database_password_file": Path("missing")}, "expected together with database"),
    ],
)
def test_passwords_in_the_wrong_place_are_refused_and_not_shown(
    tmp_path: Path, flags: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load_settings({"data": tmp_path, **flags}, {})
    assert "hunter2" not in str(caught.value)
