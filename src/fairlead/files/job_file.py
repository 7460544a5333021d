"""Job files: a job to submit, or a sweep of jobs, in YAML."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fairlead.files.parsing.document import parse_nodes
from fairlead.files.parsing.fields import (
    any_whole_number,
    name,
    number,
    quote,
    unknown_name_error,
)
from fairlead.files.parsing.text import SourceText, read_text
from fairlead.model.errors import InputError
from fairlead.model.job import parse_accelerators
from fairlead.model.submission.fields import DeclaredField, declared_fields
from fairlead.model.submission.new_job import NewJob
from fairlead.model.submission.secrets import parse_secrets

MAX_JOBS = 10_000
"""maximum number of jobs of one sweep"""
_SWITCH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_ARRAY = "expected 0-9 or lr=0.1,0.01"


@dataclass(frozen=True, slots=True)
class JobFile:
    """The fields of a job that a file sets, and the values of its sweep's variables."""

    values: Mapping[str, Any]
    """field of `NewJob` → value"""
    array: Mapping[str, tuple[str, ...]]
    snapshot: bool = False
    """whether to run a copy of the working directory"""


def read_job_file(path: str | Path) -> JobFile:
    """Return the job of a YAML file; errors name the line."""
    return parse_job_file(read_text(path))


def parse_job_file(text: SourceText) -> JobFile:
    """Return the job of a YAML text; errors name the line."""
    text.check_lines()
    try:
        return job_of_node(parse_nodes(text, "a command"))
    except InputError as error:
        raise error.within(source=text.name) from None


def parse_array(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a variable and its values: ``0-9`` (of ``index``) or ``lr=0.1,0.01``."""
    label, equals, listed = text.partition("=")
    if not equals:
        label, listed = "index", text
    label = label.strip()
    if not label.isidentifier():
        raise InputError(f"not the name of a variable: {quote(label)}", fix=_ARRAY, field="array")
    values: list[str] = []
    for part in listed.split(","):
        values += _range(part.strip())
    if not all(values):
        raise InputError("empty value", fix=_ARRAY, field="array")
    return label, tuple(values)


def parse_arrays(texts: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Return variables and their values, each as ``parse_array`` reads it; duplicates fail."""
    arrays: dict[str, tuple[str, ...]] = {}
    for text in texts:
        label, values = parse_array(text)
        if label in arrays:
            raise InputError(
                f"duplicate variable: {quote(label)}",
                fix="expected one --array per variable, with all of its values: lr=0.1,0.01",
                field="array",
            )
        arrays[label] = values
    return arrays


def _range(part: str) -> list[str]:
    """Return the numbers of 0-9 or 0-90:10; any other text is a single value."""
    span, _, step = part.partition(":")
    first, dash, last = span.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and (step or "1").isdecimal()):
        return [part]
    low, high, by = int(first), int(last), int(step or 1)
    if low > high or by < 1 or (high - low) // by >= MAX_JOBS:
        raise InputError(
            f"not a range: {quote(part)}",
            fix=f"expected 0-9, with at most {MAX_JOBS:,} values",
            field="array",
        )
    return [str(value) for value in range(low, high + 1, by)]


def job_of_node(item: yaml.Node) -> JobFile:
    """Return the job of a YAML mapping."""
    values: dict[str, Any] = {}
    array: Mapping[str, tuple[str, ...]] = {}
    snapshot = False
    for key, (line, entry) in members_of(item).items():
        if key not in FIELDS:
            raise unknown_name_error("field", key, FIELDS).within(line=line, field=key)
        try:
            if key == "array":
                array = _array(entry)
            elif key == "snapshot":
                snapshot = switch(text_of(entry))
            else:
                values[key] = _READERS[key](entry)
        except InputError as error:
            raise error.within(line=entry.start_mark.line + 1, field=key) from None
    return JobFile(values, array, snapshot)


def members_of(item: yaml.Node) -> dict[str, tuple[int, yaml.Node]]:
    """Return the entries of a mapping with the lines of their keys."""
    line = item.start_mark.line + 1
    if not isinstance(item, yaml.MappingNode):
        raise InputError("not a mapping", fix="expected name: value", line=line)
    members: dict[str, tuple[int, yaml.Node]] = {}
    for key, entry in item.value:
        line = key.start_mark.line + 1
        label = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
        if not label:
            raise InputError("missing name", fix="expected name: value", line=line)
        if label in members:
            raise InputError(f"duplicate field {quote(label)}", fix="remove one", line=line)
        members[label] = (line, entry)
    return members


def text_of(item: yaml.Node) -> str:
    """Return the text of a single value."""
    if not isinstance(item, yaml.ScalarNode):
        raise InputError("not plain text", fix="expected a single value")
    return str(item.value)


def _listed(item: yaml.Node) -> list[str]:
    if not isinstance(item, yaml.SequenceNode):
        raise InputError("not a list", fix="expected a list")
    return [text_of(entry) for entry in item.value]


def _command(item: yaml.Node) -> tuple[str, ...]:
    """Return a command: a list, or text that is split as a shell would."""
    if isinstance(item, yaml.SequenceNode):
        words = _listed(item)
    else:
        try:
            words = shlex.split(text_of(item))
        except ValueError as error:
            raise InputError(f"cannot be split ({error})", fix="expected a list") from None
    if not words:
        raise InputError("empty", fix="expected a program and its arguments")
    return tuple(words)


def _accelerators(item: yaml.Node) -> tuple[str, ...]:
    """Return accelerators, as ``v100`` or ``k80=2``: a list, or text with commas."""
    listed = _listed(item) if isinstance(item, yaml.SequenceNode) else text_of(item).split(",")
    names = tuple(name(entry) for entry in listed)
    parse_accelerators(names)
    return names


def _secrets(item: yaml.Node) -> tuple[str, ...]:
    """Return secrets, as ``NAME`` or ``NAME=VARIABLE``: a list, or text with commas."""
    listed = _listed(item) if isinstance(item, yaml.SequenceNode) else text_of(item).split(",")
    names = tuple(entry.strip() for entry in listed)
    parse_secrets(names)
    return names


def names_of(item: yaml.Node) -> tuple[str, ...]:
    """Return names, such as those of jobs: a list, or text with commas."""
    listed = _listed(item) if isinstance(item, yaml.SequenceNode) else text_of(item).split(",")
    return tuple(name(entry.strip()) for entry in listed)


def _variables(item: yaml.Node) -> dict[str, str]:
    return {label: text_of(entry) for label, (_, entry) in members_of(item).items()}


def _speeds(item: yaml.Node) -> dict[str, float]:
    """Return accelerator → steps per second."""
    return {name(label): number(text_of(entry)) for label, (_, entry) in members_of(item).items()}


def _array(item: yaml.Node) -> Mapping[str, tuple[str, ...]]:
    if not isinstance(item, yaml.MappingNode):
        label, values = parse_array(text_of(item))
        return {label: values}
    arrays = {}
    for label, (line, entry) in members_of(item).items():
        listed = isinstance(entry, yaml.SequenceNode)
        try:
            values = parse_array(f"{label}={'x' if listed else text_of(entry)}")[1]
            arrays[label] = _values(label, _listed(entry)) if listed else values
        except InputError as error:
            raise error.within(line=line) from None
    return arrays


def _values(label: str, listed: Sequence[str]) -> tuple[str, ...]:
    if not listed or not all(listed):
        problem = "empty value" if listed else "no values"
        raise InputError(f"{problem} of {quote(label)}", fix="expected a list such as [0.1, 0.01]")
    return tuple(listed)


def switch(text: str) -> bool:
    """Return the truth value of a text such as true or no."""
    if text.lower() not in _SWITCH:
        raise InputError(f"not true or false: {quote(text)}", fix="expected true or false")
    return _SWITCH[text.lower()]


def _reader(item: DeclaredField) -> Callable[[yaml.Node], Any]:
    """Return the function that reads a field's value from YAML."""
    if item.name in _SPECIAL:
        return _SPECIAL[item.name]
    if item.choices:
        return _checked(item, str)
    if item.type is str:
        required = item.length is not None and item.length.min_length
        return (lambda node: name(text_of(node))) if required else text_of
    return _checked(item, {int: any_whole_number, float: number, bool: switch}[item.type])


def _checked(item: DeclaredField, parse: Callable[[str], Any]) -> Callable[[yaml.Node], Any]:
    def read(node: yaml.Node) -> Any:
        value = parse(text_of(node))
        item.check(value)
        return value

    return read


_SPECIAL: Mapping[str, Callable[[yaml.Node], Any]] = {
    "command": _command,
    "accelerators": _accelerators,
    "environment": _variables,
    "speeds": _speeds,
    "secrets": _secrets,
    "after": names_of,
    "after_any": names_of,
}
_READERS = {item.name: _reader(item) for item in declared_fields(NewJob) if item.about.is_option}
FIELDS = (*_READERS, "array", "snapshot")
"""keys of a job file"""
