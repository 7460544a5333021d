"""Search files: a hyperparameter search and the job of its trials, in YAML."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fairlead.files.job_file import (
    JobFile,
    job_of_node,
    members_of,
    names_of,
    switch,
    text_of,
)
from fairlead.files.parsing.document import parse_nodes
from fairlead.files.parsing.fields import any_whole_number, name, number, unknown_name_error
from fairlead.files.parsing.text import SourceText, read_text
from fairlead.model.errors import InputError
from fairlead.model.submission.search import Choices, Parameter, Range, Search, Value


@dataclass(frozen=True, slots=True)
class SearchFile:
    """A search, and the fields of a job that its trials have."""

    search: Search
    job: JobFile


def read_search_file(path: str | Path) -> SearchFile:
    """Return the search of a YAML file; errors name the line."""
    return parse_search_file(read_text(path))


def parse_search_file(text: SourceText) -> SearchFile:
    """Return the search of a YAML text; errors name the line."""
    text.check_lines()
    try:
        return _search_file(parse_nodes(text, "a search with space and metric"))
    except InputError as error:
        raise error.within(source=text.name) from None


def _search_file(item: yaml.Node) -> SearchFile:
    values: dict[str, Any] = {}
    job = JobFile({}, {})
    for key, (line, entry) in members_of(item).items():
        if key not in FIELDS:
            raise unknown_name_error("field", key, FIELDS).within(line=line, field=key)
        try:
            if key == "job":
                job = job_of_node(entry)
            else:
                values[key] = _READERS[key](entry)
        except InputError as error:
            raise error.within(line=entry.start_mark.line + 1, field=key) from None
    for key in ("name", "metric", "space"):
        if key not in values:
            raise InputError("missing", fix=f"expected {key}: …", field=key)
    if job.array:
        raise InputError("an array in a search", fix="expected its values in space", field="job")
    return SearchFile(Search(**values), job)


def _space(item: yaml.Node) -> Mapping[str, Parameter]:
    space: dict[str, Parameter] = {}
    for label, (line, entry) in members_of(item).items():
        try:
            space[label] = _parameter(entry)
        except InputError as error:
            raise error.within(line=line, field=label) from None
    return space


def _parameter(item: yaml.Node) -> Parameter:
    if isinstance(item, yaml.SequenceNode):
        return Choices(tuple(_value(text_of(entry)) for entry in item.value))
    if not isinstance(item, yaml.MappingNode):
        fix = "expected a list of values, or {low: 0.001, high: 0.1, log: true}"
        raise InputError("neither a list nor a range", fix=fix)
    values: dict[str, Any] = {}
    for key, (line, entry) in members_of(item).items():
        if key not in _RANGE:
            raise unknown_name_error("field", key, tuple(_RANGE)).within(line=line)
        values[key] = _RANGE[key](text_of(entry))
    for key in ("low", "high"):
        if key not in values:
            raise InputError("missing", fix=f"expected {key}: …", field=key)
    return Range(**values)


def _value(text: str) -> Value:
    """Return a number where the text is one, else the text."""
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


_RANGE: Mapping[str, Callable[[str], Any]] = {
    "low": number,
    "high": number,
    "log": switch,
    "whole": switch,
    "points": any_whole_number,
}


def _read(parse: Callable[[str], Any]) -> Callable[[yaml.Node], Any]:
    return lambda node: parse(text_of(node))


_READERS: Mapping[str, Callable[[yaml.Node], Any]] = {
    "name": _read(name),
    "metric": _read(name),
    "space": _space,
    **dict.fromkeys(("direction", "sampler", "strategy"), _read(str)),
    **dict.fromkeys(
        ("trials", "seed", "parallel", "exclusive", "min_steps", "interval_steps"),
        _read(any_whole_number),
    ),
    **dict.fromkeys(("target", "device_hours", "quantile"), _read(number)),
    "perturb": names_of,
}
FIELDS = (*_READERS, "job")
"""keys of a search file"""
