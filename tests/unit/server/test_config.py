"""Settings of the server: who wins, what is refused, and that the guide knows them all."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from fairlead.cli.main import app
from fairlead.model.errors import InputError, UsageError
from fairlead.server.config.settings import (
    NAMES,
    ServeSettings,
    effective,
    unread,
    variable_of,
)
from fairlead.server.config.validation import verify

GUIDE = Path(__file__).parents[3] / "docs/guide/serve.md"


def written(folder: Path, text: str) -> Path:
    path = folder / "fairlead.toml"
    path.write_text(text)
    return path


def refusal(folder: Path, text: str) -> InputError:
    with pytest.raises(InputError) as caught:
        verify(effective({"data": folder}, {}, written(folder, text)))
    return caught.value


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, 'port = 1\nround_s = 2\npolicy = "fifo"\n')
    environ = {"FAIRLEAD_PORT": "3", "FAIRLEAD_ROUND_S": "4"}
    found = effective({"data": tmp_path, "port": 5, "policy": None}, environ, path)
    settings = found.settings
    assert (settings.port, settings.round_s, settings.policy) == (5, 4.0, "fifo")
    origins = [found.origin(name) for name in ("port", "round_s", "policy", "host")]
    assert origins == ["flag", "FAIRLEAD_ROUND_S", f"{path}:3", "default"]


def test_the_file_in_the_data_directory_is_read_unasked(tmp_path: Path) -> None:
    written(tmp_path, "port = 77\n")
    assert effective({"data": tmp_path}, {}).settings.port == 77
    assert effective({}, {"FAIRLEAD_DATA": str(tmp_path)}).settings.port == 77
    assert effective({"data": tmp_path / "other"}, {}).settings.port == 8642


def test_paths_in_a_file_are_seen_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "speeds.csv").write_text("x")
    path = written(tmp_path, 'data = "store"\nspeeds = "speeds.csv"\nemulate = "v100=1"\n')
    settings = effective({}, {}, path).settings
    assert settings.data == tmp_path / "store"
    assert settings.speeds == str(tmp_path / "speeds.csv")
    assert settings.emulate == "v100=1"


@pytest.mark.parametrize(
    ("text", "line", "field", "said"),
    [
        ("prot = 3", 1, "prot", "did you mean 'port'?"),
        ("\nport = 0", 2, "port", "give a port from 1 to 65535"),
        ("port = true", 1, "port", "give a port"),
        ("round_s = inf", 1, "round_s", "give seconds above 0"),
        ('round_s = "soon"', 1, "round_s", "give seconds above 0"),
        ("requests_per_s = 0", 1, "requests_per_s", "above 0"),
        ('log_format = "xml"', 1, "log_format", "give text or json"),
        ('policy = "maxmin"', 1, "policy", "max-min"),
        ('mechanism = "ideal"', 1, "mechanism", "simulation only"),
        ('engine = "slum"', 1, "engine", "slurm"),
        ('policy = "hadare"', 1, "policy", "copies"),
        ('emulate = "v100=x"', 1, "emulate", "is not a number"),
        ("[server]\nport = 3", 1, "server", "unknown setting"),
        ('database = "nowhere"', None, "database", "postgresql"),
        ('tls_certificate = "a.pem"', None, "tls_key", "give both"),
        (
            'tls_certificate = "fairlead.toml"\ntls_key = "fairlead.toml"',
            None,
            "tls_certificate",
            "both as PEM",
        ),
        ("port = ", 1, None, "not TOML"),
    ],
)
def test_what_is_wrong_is_one_error_with_place_field_and_fix(
    tmp_path: Path, text: str, line: int | None, field: str | None, said: str
) -> None:
    error = refusal(tmp_path, text)
    assert (error.line, error.field) == (line, field)
    assert said in str(error)


def test_a_variable_is_named_by_its_error() -> None:
    with pytest.raises(InputError, match="FAIRLEAD_PORT: port: 'x'"):
        effective({}, {"FAIRLEAD_PORT": "x"})


def test_listening_elsewhere_without_tls_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="in the clear"):
        effective({"data": tmp_path, "host": "0.0.0.0"}, {})


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
@pytest.mark.parametrize(
    ("engine", "name"),
    [
        ("local", "127.0.0.1"),
        ("rehearsal", "127.0.0.1"),
        ("slurm:partition=gpu", os.uname().nodename),
        ("ray", os.uname().nodename),
    ],
)
def test_jobs_of_this_machine_find_the_server_where_its_own_clients_do(
    tmp_path: Path, host: str, engine: str, name: str
) -> None:
    settings = ServeSettings(data=tmp_path, host=host, engine=engine, port=8643)
    assert settings.members_url == f"http://{name}:8643"
    named = ServeSettings(data=tmp_path, host="gpu.example", engine=engine, port=8643)
    assert named.members_url == named.url == "http://gpu.example:8643"


def test_passwords_are_not_shown(tmp_path: Path) -> None:
    url = "postgresql+psycopg://fairlead:hunter2@db/fairlead"
    found = effective({"data": tmp_path}, {"FAIRLEAD_DATABASE": url})
    (shown,) = [one.shown for one in found.listed if one.name == "database"]
    assert shown == "postgresql+psycopg://fairlead:***@db/fairlead"
    assert found.settings.database == url


def test_variables_that_are_no_settings_are_found() -> None:
    assert unread(["FAIRLEAD_POTR", "FAIRLEAD_PORT", "FAIRLEAD_URL", "HOME"]) == ["FAIRLEAD_POTR"]


@pytest.mark.parametrize("name", NAMES)
def test_the_guide_documents_every_setting(name: str) -> None:
    assert f"| `{name}` |" in GUIDE.read_text()
    assert variable_of(name) == f"FAIRLEAD_{name.upper()}"


def test_the_help_of_every_command_gives_an_example_and_explains_every_option() -> None:
    def walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        if not hasattr(command, "commands"):
            yield name, command
            return
        for key, inner in command.commands.items():
            yield from walk(f"{name} {key}", inner)

    commands = dict(walk("fairlead", get_command(app)))
    assert len(commands) >= 30
    assert [name for name, one in commands.items() if "Example:" not in one.help] == []
    silent = [
        (name, option.name)
        for name, one in commands.items()
        for option in one.params
        if option.name != "help" and not getattr(option, "help", None)
    ]
    assert silent == []
