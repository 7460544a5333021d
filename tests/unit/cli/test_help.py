"""Every ``--help`` is complete: an example, units of numbers, and commands ordered by reader."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from fairlead.cli.main import app

UNITS = re.compile(
    r"number|seconds|hour|GiB|MiB|devices|steps|size|port|rank|priority|weight|factor|fraction"
    r"|multiples|seed|entries|event|entitlement|requests|renewals",
    re.IGNORECASE,
)
"""words by which a help text tells the unit of a number"""


ROOT: Any = get_command(app)


def commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if name != "fairlead":
        yield name, command
    for key, sub in getattr(command, "commands", {}).items():
        yield from commands(f"{name} {key}", sub)


COMMANDS = dict(commands("fairlead", ROOT))


def examples(text: str) -> list[str]:
    matches = re.findall(r"Example: +((?:.|\n(?!\n))+)", text)
    return [" ".join(each.split()) for each in matches]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_that_parses(name: str) -> None:
    shown = examples(COMMANDS[name].help)
    assert shown, "no example"
    for example in shown:
        words = shlex.split(example.partition("| ")[2] if "| fairlead" in example else example)
        if ">" in words:
            words = words[: words.index(">")]
        assert words[: len(name.split())] == name.split()
        command, rest = ROOT, words[1:]
        while rest and rest[0] in getattr(command, "commands", {}):
            command = command.commands[rest.pop(0)]
        context = command.context_class(command, info_name=name, **command.context_settings)
        command.make_parser(context).parse_args(rest)


@pytest.mark.parametrize("name", COMMANDS)
def test_options_are_described_and_numbers_have_units(name: str) -> None:
    for option in COMMANDS[name].params:
        about = getattr(option, "help", "") or ""
        assert about.endswith((".", "…")), f"{option.name}: {about!r}"
        if option.type_descriptor.annotation in (int, float):
            assert UNITS.search(about), f"{option.name}: {about!r}"


@pytest.mark.parametrize("line", ["--help", "job --help", "nodes drain -h"])
def test_flags_show_no_type_because_they_take_no_value(line: str) -> None:
    shown = CliRunner().invoke(app, line.split()).stdout
    assert "--help" in shown
    assert "<bool>" not in shown
    assert "BOOLEAN" not in shown


def test_commands_are_ordered_by_reader() -> None:
    panels = {name: command.rich_help_panel for name, command in ROOT.commands.items()}
    assert list(dict.fromkeys(panels.values())) == [
        "Train: submit and follow jobs",
        "Operate: run and manage a cluster",
        "Research: simulate and compare policies",
    ]
