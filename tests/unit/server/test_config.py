"""Settings of the server: precedence of the sources, errors, and the guide's table."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from fairlead.cli.main import app
from fairlead.model.errors import InputError, UsageError
from fairlead.server.config.declaration import NAMES, default_text, flag_of, variable_of
from fairlead.server.config.loading import load_settings, unknown_variables
from fairlead.server.config.settings import ServeSettings
from fairlead.server.config.validation import verify
from fairlead.server.reload import RELOADED

GUIDE = Path(__file__).parents[3] / "docs/guide/serve.md"
LIVE_CHANGES = GUIDE.parents[1] / "operate/policy.md"


def write_settings(folder: Path, text: str) -> Path:
    path = folder / "fairlead.toml"
    path.write_text(text)
    return path


def refusal(folder: Path, text: str) -> InputError:
    with pytest.raises(InputError) as caught:
        verify(load_settings({"data": folder}, {}, write_settings(folder, text)))
    return caught.value


def test_flags_win_over_the_environment_and_the_environment_over_the_file(tmp_path: Path) -> None:
    path = write_settings(tmp_path, 'port = 1\nround_s = 2\npolicy = "fifo"\n')
    environ = {"FAIRLEAD_PORT": "3", "FAIRLEAD_ROUND_S": "4"}
    effective = load_settings({"data": tmp_path, "port": 5, "policy": None}, environ, path)
    settings = effective.settings
    assert (settings.port, settings.round_s, settings.policy) == (5, 4.0, "fifo")
    origins = [effective.origin(name) for name in ("port", "round_s", "policy", "host")]
    assert origins == ["flag", "FAIRLEAD_ROUND_S", f"{path}:3", "default"]


def test_empty_and_lower_case_variables_do_not_count(tmp_path: Path) -> None:
    environ = {"FAIRLEAD_PORT": "", "fairlead_port": "5"}
    assert load_settings({"data": tmp_path}, environ).settings.port == 8642


def test_the_process_environment_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_PORT", "5")
    assert load_settings({"data": tmp_path}, {}).settings.port == 8642
    assert ServeSettings(data=tmp_path).port == 8642


def test_the_file_in_the_data_directory_is_read_by_default(tmp_path: Path) -> None:
    write_settings(tmp_path, "port = 77\n")
    assert load_settings({"data": tmp_path}, {}).settings.port == 77
    assert load_settings({}, {"FAIRLEAD_DATA": str(tmp_path)}).settings.port == 77
    assert load_settings({"data": tmp_path / "other"}, {}).settings.port == 8642


def test_paths_in_a_file_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "speeds.csv").write_text("x")
    path = write_settings(tmp_path, 'data = "store"\nspeeds = "speeds.csv"\nemulate = "v100=1"\n')
    settings = load_settings({}, {}, path).settings
    assert settings.data == tmp_path / "store"
    assert settings.speeds == str(tmp_path / "speeds.csv")
    assert settings.emulate == "v100=1"


@pytest.mark.parametrize(
    ("text", "line", "field", "message"),
    [
        ("prot = 3", 1, "prot", "did you mean 'port'?"),
        ("\nport = 0", 2, "port", "invalid value 0: expected a port from 1 to 65535"),
        ("port = true", 1, "port", "invalid value True: expected a port"),
        ("port = [1]", 1, "port", "invalid value a list: expected a port"),
        ("round_s = inf", 1, "round_s", "expected 0.001 to 1e+10 seconds"),
        ("standby_s = nan", 1, "standby_s", "expected seconds, 0 or more"),
        ('round_s = "soon"', 1, "round_s", "expected 0.001 to 1e+10 seconds"),
        ("requests_per_s = 0", 1, "requests_per_s", "above 0"),
        ('log_format = "xml"', 1, "log_format", "expected text or json"),
        ('policy = "maxmin"', 1, "policy", "max-min"),
        ('mechanism = "hadar"', 1, "mechanism", "policy instead: --policy hadar"),
        ('mechanism = "ideal"', 1, "mechanism", "simulation only"),
        ('engine = "slum"', 1, "engine", "slurm"),
        ('emulate = "v100=x"', 1, "emulate", "number"),
        ("[server]\nport = 3", 1, "server", "unknown setting"),
        ('database = "nowhere"', 1, "database", "postgresql"),
        ('database = "mysql://me@db/name"', 1, "database", "'mysql' is not supported: expected a"),
        ('database = "postgresql+odd://db/name"', 1, "database", "the extra fairlead[postgresql]"),
        ("plan_on = 0.9\nexplore = true", 2, "explore", "expected speeds = guess or a table, and"),
        ('speeds = "none"\nplan_on = 0.9', 2, "plan_on", "expected speeds = guess or a table"),
        ('emulated_speeds = "gandiva-fair"', 1, "emulated_speeds", "expected emulated devices"),
        ('node_name = "a\\nb"', 1, "node_name", "expected a name of 1 to 128 characters"),
        (f'node_name = "{"n" * 129}"', 1, "node_name", "expected a name of 1 to 128 characters"),
        ('node_name = "n1 "', 1, "node_name", "ends with a space: expected 'n1'"),
        ('allowed_hosts = "a.example, https://b.example"', 1, "allowed_hosts", "without scheme"),
        ('allowed_hosts = "a.example:443"', 1, "allowed_hosts", "without scheme and port"),
        ('engine = "rehearsal"', 1, "engine", "--emulate: missing"),
        ('engine = "slurm"\nemulate = "v100=1"', 1, "engine", "use --engine NAME:emulate"),
        ('engine = "local:mps"\nemulate = "v100=1"', 1, "engine", "expected GPUs"),
        (
            'oidc_issuer = "https://id.example"\noidc_client_id = "x"\nengine = "ray"',
            3,
            "engine",
            "or --trust-jobs",
        ),
        ('tls_certificate = "a.pem"', None, "tls_key", "expected together with tls_certificate"),
        (
            '\ntls_certificate = "fairlead.toml"\ntls_key = "fairlead.toml"',
            2,
            "tls_certificate",
            "both as PEM",
        ),
        ("port = ", 1, None, "not TOML"),
    ],
)
def test_an_error_names_place_field_and_expected_value(
    tmp_path: Path, text: str, line: int | None, field: str | None, message: str
) -> None:
    error = refusal(tmp_path, text)
    assert (error.line, error.field) == (line, field)
    assert message in str(error)


@pytest.mark.parametrize(
    "text",
    [
        'database = "sqlite:///other.db"',
        'database = "postgresql+psycopg://me@db/name"',
        'allowed_hosts = "a.example, 10.0.0.1, FD00::1, my_node"',
        'allowed_hosts = "*"',
        'node_name = "node one"',
        'engine = "slurm:emulate"\nemulated_speeds = "gandiva-fair"',
        'oidc_issuer = "https://id.example"\noidc_client_id = "x"\nengine = "slurm:users"',
    ],
)
def test_settings_with_which_a_server_starts_pass(tmp_path: Path, text: str) -> None:
    verify(load_settings({"data": tmp_path}, {}, write_settings(tmp_path, text)))


def test_an_error_in_a_variable_names_the_variable() -> None:
    with pytest.raises(InputError, match=r"^FAIRLEAD_PORT: port: invalid value 'x': expected a"):
        load_settings({}, {"FAIRLEAD_PORT": "x"})
    with pytest.raises(InputError, match=r"^FAIRLEAD_STANDBY_S: standby_s: invalid value 'nan'"):
        load_settings({}, {"FAIRLEAD_STANDBY_S": "nan"})


def test_an_error_in_a_flag_is_a_usage_error_that_names_the_flag(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--round: invalid value 0.0: expected 0.001 to"):
        load_settings({"data": tmp_path, "round_s": 0.0}, {})
    with pytest.raises(InputError, match=r"^--database: not a database URL: expected a URL"):
        load_settings({"data": tmp_path, "database": "nowhere"}, {})


def test_listening_beyond_loopback_requires_tls(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="in the clear"):
        load_settings({"data": tmp_path, "host": "0.0.0.0"}, {})


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
def test_local_jobs_use_the_loopback_url_and_remote_jobs_the_node_name(
    tmp_path: Path, host: str, engine: str, name: str
) -> None:
    settings = ServeSettings(data=tmp_path, host=host, engine=engine, port=8643)
    assert settings.members_url == f"http://{name}:8643"
    named = ServeSettings(data=tmp_path, host="gpu.example", engine=engine, port=8643)
    assert named.members_url == named.url == "http://gpu.example:8643"


def test_passwords_are_not_shown(tmp_path: Path) -> None:
    url = "postgresql+psycopg://fairlead:hunter2@db/fairlead"
    effective = load_settings({"data": tmp_path}, {"FAIRLEAD_DATABASE": url})
    (shown,) = [value.shown for value in effective.values if value.name == "database"]
    assert shown == "postgresql+psycopg://fairlead:***@db/fairlead"
    assert effective.settings.database == url


def test_misspelt_variables_are_listed() -> None:
    environ = ["FAIRLEAD_POTR", "FAIRLEAD_PORT", "FAIRLEAD_URL", "HOME"]
    assert unknown_variables(environ) == ["FAIRLEAD_POTR"]


@pytest.mark.parametrize("name", NAMES)
def test_the_guide_documents_every_setting_with_its_default_and_flag(name: str) -> None:
    rows = [line.split("|") for line in GUIDE.read_text().splitlines() if line.startswith("|")]
    (row,) = [row for row in rows if row[1].strip() == f"`{name}`"]
    assert row[2].replace("`", "").strip() == (default_text(name) or "none")
    assert flag_of(name) in (f"--{name.replace('_', '-')}", *re.findall("`(--[a-z-]+)`", row[3]))
    assert variable_of(name) == f"FAIRLEAD_{name.upper()}"


def test_serve_has_a_flag_for_every_setting() -> None:
    root: Any = get_command(app)
    flags = {option.name: option.opts[0] for option in root.commands["serve"].params}
    others = {"config": "--config", "accept_log_until": "--accept-log-until"}
    assert flags == others | {name: flag_of(name) for name in NAMES}


def test_the_help_of_every_command_gives_an_example_and_explains_every_option() -> None:
    def walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        if not hasattr(command, "commands"):
            yield name, command
            return
        for key, inner in command.commands.items():
            yield from walk(f"{name} {key}", inner)

    commands = dict(walk("fairlead", get_command(app)))
    assert len(commands) >= 30
    assert [name for name, command in commands.items() if "Example:" not in command.help] == []
    undocumented = [
        (name, option.name)
        for name, command in commands.items()
        for option in command.params
        if option.name != "help" and not getattr(option, "help", None)
    ]
    assert undocumented == []


def test_the_table_of_live_changes_names_every_setting_once() -> None:
    _, _, section = LIVE_CHANGES.read_text().partition("## Other settings")
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| ")]
    named = [(name, way) for names, way in rows for name in re.findall(r"`(\w+)`", names)]
    assert sorted(name for name, _ in named if name in NAMES) == sorted(NAMES)
    reloaded = {name for name, way in named if "SIGHUP" in way}
    assert reloaded == RELOADED


def test_the_settings_load_neither_pydantic_nor_numpy() -> None:
    code = (
        "import sys, fairlead.cli.operate.serve; print({'pydantic', 'numpy'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert shown.stdout == b"set()\n"
