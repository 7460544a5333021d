"""The examples for operators fit the project: their files, extras, settings and commands exist."""

import json
import os
import re
import subprocess
import sys
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from typer.main import get_command

from fairlead.cli.main import app
from fairlead.server.config.declaration import NAMES
from fairlead.server.config.retention import seconds_of

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/container"


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Containerfile with their arguments."""
    text = (EXAMPLE / "Containerfile").read_text(encoding="utf-8")
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.M))
    parted = (line.partition(" ") for line in joined.splitlines())
    return [(instruction, arguments.strip()) for instruction, _, arguments in parted]


def arguments_of(name: str) -> list[str]:
    return [arguments for instruction, arguments in instructions() if instruction == name]


def require_options(name: str, options: list[str]) -> None:
    """Require that a command has these options."""
    commands: Any = get_command(app)
    command = commands.commands[name]
    command.make_parser(command.context_class(command)).parse_args([*options])


def test_the_image_installs_files_and_extras_that_exist() -> None:
    copied = [word for line in arguments_of("COPY") for word in line.split()[:-1]]
    assert all((ROOT / name).exists() for name in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = {project["project"]["readme"], *project["project"]["license-files"]}
    needed |= {"pyproject.toml", "src", "hatch_build.py"}
    assert needed <= set(copied)
    (extras,) = re.findall(r"/source\[([^]]*)\]", "\n".join(arguments_of("RUN")))
    assert set(extras.split(",")) <= set(project["project"]["optional-dependencies"])


def test_the_image_starts_a_server_with_settings_that_exist() -> None:
    (entry,), (command,) = arguments_of("ENTRYPOINT"), arguments_of("CMD")
    assert json.loads(entry) == ["/opt/fairlead/bin/fairlead"]
    name, *options = json.loads(command)
    require_options(name, options)
    settings = tomllib.loads((EXAMPLE / "fairlead.toml").read_text(encoding="utf-8"))
    assert set(settings) <= set(NAMES)
    assert seconds_of(settings["keep_jobs"]) == 90 * 86400.0
    compose = yaml.safe_load((EXAMPLE / "compose.yaml").read_text(encoding="utf-8"))
    server = compose["services"]["server"]
    build = EXAMPLE / server["build"]["context"]
    assert (build / server["build"]["dockerfile"]).samefile(EXAMPLE / "Containerfile")
    mounted = {volume.split(":")[1] for volume in server["volumes"]}
    mounted |= {f"/run/secrets/{secret}" for secret in server["secrets"]}
    named = {value for value in settings.values() if str(value).startswith("/")}
    assert named | {options[-1]} <= mounted
    assert set(server["secrets"]) == set(compose["secrets"])
    (user,) = re.findall(r"--uid (\d+)", "\n".join(arguments_of("RUN")))
    assert f"chown {user} " in (EXAMPLE / "compose.yaml").read_text(encoding="utf-8")


def test_the_systemd_unit_starts_a_server_and_is_the_one_of_the_checklist() -> None:
    unit = (ROOT / "examples/systemd/fairlead.service").read_text(encoding="utf-8")
    settings = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line)
    program, name, *options = settings["ExecStart"].split()
    assert program == "/opt/fairlead/bin/fairlead"
    require_options(name, options)
    assert (settings["KillMode"], settings["Restart"]) == ("process", "always")
    page = (ROOT / "docs/operate/production.md").read_text(encoding="utf-8")
    printed = page.partition("```ini\n")[2].partition("```")[0]
    lines = {line.strip() for line in printed.splitlines()[1:]}
    assert lines - {""} <= set(unit.splitlines())


class _Health(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_health_check_asks_the_server(tmp_path: Path, status: int, code: int) -> None:
    command = json.loads(arguments_of("HEALTHCHECK")[0].partition("CMD ")[2])
    handler = type("Handler", (_Health,), {"status": status})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.handle_request, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        (tmp_path / "server.json").write_text(json.dumps({"url": url}))
        done = subprocess.run(
            [sys.executable, *command[1:]],
            env={**os.environ, "FAIRLEAD_DATA": str(tmp_path)},
            capture_output=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == code, done.stderr
