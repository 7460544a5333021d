"""Every command in the documentation works as it is printed."""

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.docs.console import ROOT, Block, blocks, fairlead_calls, pages
from typer.main import get_command

from fairlead.cli.main import app
from fairlead.engines.keeper.environment import free_port

BLOCKS = [(page, one) for page in pages() for one in blocks(page) if one.commands]
RUN = [page for page in pages() if any(one.is_run and one.commands for one in blocks(page))]


@pytest.mark.parametrize(
    ("page", "block"), BLOCKS, ids=[f"{page}:{block.line}" for page, block in BLOCKS]
)
def test_every_command_has_options_that_exist(page: str, block: Block) -> None:
    del page
    for command in block.commands:
        for arguments in fairlead_calls(command):
            _parse([word for word in arguments if word != "…"])


def _parse(arguments: list[str]) -> None:
    """Parse the words as the command line does, without running or converting anything."""
    command: Any = get_command(app)
    name = "fairlead"
    while hasattr(command, "commands") and arguments and arguments[0] in command.commands:
        name, *arguments = arguments
        command = command.commands[name]
    context = command.context_class(command, info_name=name, **command.context_settings)
    command.make_parser(context).parse_args(list(arguments))


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

    def run(self, command: str) -> None:
        """Run a command; start the server in the background where the command does."""
        if command.endswith("&"):
            self._serve(command.removesuffix("&"))
            return
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}\n{done.stderr}"

    def _serve(self, command: str) -> None:
        log = self._folder / "server.log"
        with log.open("wb") as file:
            self._server = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self._folder,
                env=self._environment,
                stdout=file,
                stderr=file,
            )
        until = time.monotonic() + 60
        while not (self._folder / "data" / "server.json").exists():
            assert self._server.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.1)

    def close(self) -> None:
        """Stop the server."""
        if self._server is not None:
            self._server.terminate()
            self._server.wait(30)


@pytest.fixture
def page_of(tmp_path: Path) -> Iterator[Page]:
    page = Page(tmp_path)
    yield page
    page.close()


@pytest.mark.parametrize("page", RUN)
def test_the_commands_of_a_page_run_in_order(page: str, page_of: Page) -> None:
    ran = 0
    for block in blocks(page):
        if not block.is_run or (block.needs and not importlib.util.find_spec(block.needs)):
            continue
        for name, text in files_named_in(page):
            (page_of._folder / name).write_text(text, encoding="utf-8")
        for command in block.commands:
            page_of.run(command)
            ran += 1
    if not ran:
        pytest.skip("needs a module that is not installed")


def files_named_in(page: str) -> Iterator[tuple[str, str]]:
    """Yield the files that a page asks to save: ``Save as `NAME```, then a code block."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for part in text.split("Save as `")[1:]:
        name = part.partition("`")[0]
        yield name, part.partition("```")[2].partition("\n")[2].partition("```")[0]
