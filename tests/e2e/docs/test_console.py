"""Every command in the documentation works as it is printed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.docs.console import Block, blocks, fairlead_calls, pages
from tests.e2e.docs.page import Page
from typer.main import get_command

from fairlead.cli.main import app

BLOCKS = [(page, one) for page in pages() for one in blocks(page) if one.commands]
RUN = [page for page in pages() if any(one.is_run and one.commands for one in blocks(page))]
RUN.remove("docs/start/first-week.md")  # test_first_week.py runs it and looks at the results


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


@pytest.fixture
def page_of(tmp_path: Path) -> Iterator[Page]:
    page = Page(tmp_path)
    yield page
    page.close()


@pytest.mark.parametrize("page", RUN)
def test_the_commands_of_a_page_run_in_order(page: str, page_of: Page) -> None:
    ran = sum(page_of.run_block(page, block) for block in blocks(page))
    if not ran:
        pytest.skip("needs a module that is not installed")
