"""The container example fits the project: its files, extras, settings and commands exist."""

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
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines()]  # type: ignore[misc]


def arguments_of(name: str) -> list[str]:
    return [arguments for instruction, arguments in instructions() if instruction == name]


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
    serve: Any = get_command(app).commands[name]  # type: ignore[attr-defined]
    serve.make_parser(serve.context_class(serve)).parse_args([*options])
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
