"""Pages of the documentation as a user follows them: saved files, commands, servers."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.docs.console import ROOT, Block
from tests.e2e.support.forks import run_command
from tests.support.ports import free_port

_PLAIN = re.compile(r"fairlead [^|;&$<>~`*?(]+")
"""a command of which a shell would change no word"""


class Page:
    """Runs the blocks of one page in a folder of its own, with a server where one is started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: subprocess.Popen[bytes] | None = None
        port = free_port()
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "FAIRLEAD_DATA": str(folder / "data"),
            "FAIRLEAD_PORT": str(port),
            "COLUMNS": "100",
        }
        for name in ("docs", "examples"):
            (folder / name).symlink_to(ROOT / name)

    @property
    def data(self) -> Path:
        """Data directory of the server that commands find."""
        return Path(self._environment["FAIRLEAD_DATA"])

    def run_block(self, page: str, block: Block) -> int:
        """Run the commands of a block; return their number, 0 if the block is not run here."""
        if not block.is_run or (block.needs and not importlib.util.find_spec(block.needs)):
            return 0
        for name, text in files_named_in(page):
            (self._folder / name).write_text(text, encoding="utf-8")
        for command in block.commands:
            self.run(command)
        return len(block.commands)

    def run(self, command: str) -> None:
        """Run a command as the user's shell would: servers in the background are its jobs."""
        if command.endswith("&"):
            self._serve(command.removesuffix("&"))
        elif command == "kill %1":
            self.close()
        elif command.startswith("export "):
            name = command.removeprefix("export ").partition("=")[0]
            self._environment[name] = self._shell(f'{command}; printf %s "${name}"')
        elif self._server is not None and _PLAIN.fullmatch(command):
            words = shlex.split(command)[1:]  # without the start of an interpreter
            _check(command, run_command(words, self._environment, 240, self._folder))
        else:
            self._shell(command)

    def _shell(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        return _check(command, done)

    def _serve(self, command: str) -> None:
        words = shlex.split(command)
        data = self.data
        if "--data" in words:
            data = self._folder / words[words.index("--data") + 1]
        address, log = data / "server.json", self._folder / "server.log"
        address.unlink(missing_ok=True)
        with log.open("ab") as file:
            self._server = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self._folder,
                env=self._environment,
                stdout=file,
                stderr=file,
            )
        until = time.monotonic() + 90
        while not address.exists():
            assert self._server.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.1)

    def close(self) -> None:
        """Stop the server."""
        if self._server is not None:
            self._server.terminate()
            self._server.wait(90)
            self._server = None


def _check(command: str, done: subprocess.CompletedProcess[str]) -> str:
    """Return the output of a command; fail if it has failed."""
    assert done.returncode == 0, f"$ {command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def files_named_in(page: str) -> Iterator[tuple[str, str]]:
    """Yield the files that a page asks to save: ``Save as `NAME```, then a code block."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for part in text.split("Save as `")[1:]:
        name = part.partition("`")[0]
        yield name, part.partition("```")[2].partition("\n")[2].partition("```")[0]
