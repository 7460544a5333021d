"""The readers accept the examples of the formats page."""

import importlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.files import read_cluster, read_instance, read_speeds, read_tenants, read_trace
from fairlead.files.recorded_curves import read_curves
from fairlead.files.speeds.table import HEADER
from fairlead.files.traces.trace import COLUMNS

PAGE = (Path(__file__).parents[3] / "docs/reference/formats.md").read_text(encoding="utf-8")
READERS: dict[str, Callable[[Path], object]] = {
    "Cluster": read_cluster,
    "Speeds": read_speeds,
    "Trace": read_trace,
    "Instance": read_instance,
    "Tenants": read_tenants,
    "Learning curves": read_curves,
}


def examples() -> list[tuple[str, str]]:
    listed = []
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        title = section.splitlines()[0]
        for form, body in re.findall(r"^```(csv|json|yaml)\n(.*?)^```$", section, re.S | re.M):
            listed.append((title, f"{form}\n{body}"))
    return listed


@pytest.mark.parametrize(("title", "example"), examples())
def test_an_example_is_readable(tmp_path: Path, title: str, example: str) -> None:
    form, _, body = example.partition("\n")
    path = tmp_path / f"example.{form}"
    path.write_text(body)
    assert READERS[title](path)


def test_every_format_has_an_example() -> None:
    assert {title for title, _ in examples()} == set(READERS)


@pytest.mark.parametrize("column", [*COLUMNS, *HEADER])
def test_every_column_is_explained(column: str) -> None:
    assert f"`{column}`" in PAGE


def test_every_listed_function_exists() -> None:
    listed = re.findall(r"`([a-z_.]+)\([a-z_, ]+\)`", PAGE.partition("All functions are in")[0])
    assert len(listed) == 10
    for name in listed:
        module, _, function = f"fairlead.files.{name}".rpartition(".")
        assert callable(getattr(importlib.import_module(module), function))
