"""Values of options that Fairlead converts itself are those that Typer would pass on."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.core import TyperOption
from typer.main import get_command

from fairlead.cli.plain_values import convert_plain_values


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


def _command(
    name: Annotated[str | None, typer.Option()] = None,
    count: Annotated[int, typer.Option(min=0, max=100)] = 1,
    length: Annotated[float | None, typer.Option(min=0.5)] = None,
    file: Annotated[Path | None, typer.Option()] = None,
    folder: Annotated[Path | None, typer.Option(exists=True, file_okay=False)] = None,
    colour: Annotated[Colour, typer.Option()] = Colour.RED,
    shared: Annotated[bool | None, typer.Option()] = None,
    names: Annotated[list[str] | None, typer.Option()] = None,
    counts: Annotated[list[int] | None, typer.Option(min=0)] = None,
    upper: Annotated[str | None, typer.Option(parser=str.upper)] = None,
) -> None:
    pass


def _option(name: str) -> Any:
    application = typer.Typer()
    application.command()(_command)
    command: Any = get_command(application)
    (option,) = [each for each in command.params if each.name == name]
    convert_plain_values(option)
    return option


PLAIN: list[tuple[str, object]] = [
    *(("name", value) for value in (None, "", "a", " a b ", "ü")),
    *(("count", value) for value in ("0", "7", "007", "-0", "100", 1)),
    *(("length", value) for value in (None, "2", "0.5", "12345.678901", "002.50", 1.5)),
    *(("file", value) for value in (None, "", ".", "nowhere/a.csv", "/")),
    *(("colour", value) for value in ("red", "blue", Colour.BLUE)),
    *(("shared", value) for value in (None, True, False)),
    *(("names", value) for value in (None, (), [], ("a", "b"), ["a"])),
    *(("counts", value) for value in (None, ("1", "22"))),
]
OTHERS: list[tuple[str, object]] = [
    *(("count", value) for value in ("-1", "101", "1_0", " 5 ", "+5", "٣", "2.0", "many", "")),
    *(("count", value) for value in ("9" * 30, 2.0, True)),
    *(("length", value) for value in ("0.25", "nan", "inf", "1e3", ".5", "5.", " 2", "1,5", 2)),
    *(("folder", value) for value in (None, ".", "nowhere", __file__)),
    *(("colour", value) for value in ("RED", "green", "")),
    *(("shared", value) for value in ("yes", "perhaps")),
    *(("counts", value) for value in (("1", "-1"), ("1", "x"), "12")),
    *(("upper", value) for value in (None, "ab")),
]


def _outcome(process: Any, value: object) -> object:
    context = typer.Context(get_command(typer.Typer(callback=lambda: None)))
    try:
        converted = process(context, value)
    except Exception as error:
        return type(error), str(error)
    return type(converted), converted


@pytest.mark.parametrize(("name", "value"), [*PLAIN, *OTHERS])
def test_values_and_errors_are_those_of_typer(name: str, value: object) -> None:
    option = _option(name)
    expected = _outcome(lambda *args: TyperOption.process_value(option, *args), value)
    assert _outcome(option.process_value, value) == expected


@pytest.mark.parametrize(("name", "value"), PLAIN)
def test_plain_values_do_not_reach_typer(
    monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    option = _option(name)
    monkeypatch.setattr(TyperOption, "process_value", None)
    option.process_value(None, value)
