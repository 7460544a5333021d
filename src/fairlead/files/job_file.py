"""Job files: a job to submit, or a sweep of them, in YAML."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fairlead.files.parsing.document import parse_nodes
from fairlead.files.parsing.fields import (
    name,
    number,
    quoted,
    unknown,
    whole,
)
from fairlead.files.parsing.text import Text, read_text
from fairlead.model.errors import InputError
from fairlead.model.job import parse_accelerators


@dataclass(frozen=True, slots=True)
class JobFile:
    """What a file says of a job; ``array`` has the values over which it is swept."""

    values: Mapping[str, Any]
    array: Mapping[str, tuple[str, ...]]


def read_job_file(path: str | Path) -> JobFile:
    """Return the job of a YAML file; errors name the line."""
    return parse_job_file(read_text(path))


def parse_job_file(text: Text) -> JobFile:
    """Return the job of a YAML text; errors name the line."""
    text.check_lines()
    try:
        return _job_file(parse_nodes(text, "a command"))
    except InputError as error:
        raise error.within(source=text.name) from None


def parse_array(given: str) -> tuple[str, tuple[str, ...]]:
    """Return a variable and its values: ``0-9`` (of ``index``) or ``lr=0.1,0.01``."""
    label, equals, listed = given.partition("=")
    if not equals:
        label, listed = "index", given
    label = label.strip()
    if not label.isidentifier():
        raise InputError(
            f"{quoted(label)} is no variable's name", fix="give 0-9 or lr=0.1,0.01", field="array"
        )
    values: list[str] = []
    for part in listed.split(","):
        values += _range(part.strip())
    if not all(values):
        raise InputError("a value is empty", fix="give 0-9 or lr=0.1,0.01", field="array")
    return label, tuple(values)


def parse_arrays(given: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Return variables and their values, each as ``parse_array`` reads it, and given once."""
    found: dict[str, tuple[str, ...]] = {}
    for one in given:
        label, values = parse_array(one)
        if label in found:
            raise InputError(
                f"{quoted(label)} is given twice",
                fix="give one --array for each variable, with all of its values: lr=0.1,0.01",
                field="array",
            )
        found[label] = values
    return found


def _range(part: str) -> list[str]:
    """Return the numbers of 0-9 or 0-90:10; anything else is one value."""
    span, _, step = part.partition(":")
    first, dash, last = span.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and (step or "1").isdecimal()):
        return [part]
    low, high, by = int(first), int(last), int(step or 1)
    if low > high or by < 1 or (high - low) // by >= MAX_JOBS:
        raise InputError(
            f"{quoted(part)} is no range", fix=f"give 0-9, at most {MAX_JOBS:,}", field="array"
        )
    return [str(value) for value in range(low, high + 1, by)]


MAX_JOBS = 10_000
"""of one sweep"""


def _job_file(item: yaml.Node) -> JobFile:
    values: dict[str, Any] = {}
    array: Mapping[str, tuple[str, ...]] = {}
    known = (*_READERS, "array")
    for key, (line, entry) in _members(item).items():
        if key not in known:
            raise unknown("field", key, known).within(line=line, field=key)
        try:
            if key == "array":
                array = _array(entry)
            else:
                values[key] = _READERS[key](entry)
        except InputError as error:
            raise error.within(line=entry.start_mark.line + 1, field=key) from None
    return JobFile(values, array)


def _members(item: yaml.Node) -> dict[str, tuple[int, yaml.Node]]:
    """Return the entries of a mapping with the lines of their keys."""
    line = item.start_mark.line + 1
    if not isinstance(item, yaml.MappingNode):
        raise InputError("it is not a mapping", fix="give name: value", line=line)
    found: dict[str, tuple[int, yaml.Node]] = {}
    for key, entry in item.value:
        line = key.start_mark.line + 1
        label = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
        if not label:
            raise InputError("a name is missing", fix="give name: value", line=line)
        if label in found:
            raise InputError(f"{quoted(label)} is given twice", fix="remove one", line=line)
        found[label] = (line, entry)
    return found


def _text(item: yaml.Node) -> str:
    if not isinstance(item, yaml.ScalarNode):
        raise InputError("it is not plain text", fix="give one value")
    return str(item.value)


def _listed(item: yaml.Node) -> list[str]:
    if not isinstance(item, yaml.SequenceNode):
        raise InputError("it is not a list", fix="give a list")
    return [_text(entry) for entry in item.value]


def _words(item: yaml.Node) -> list[str]:
    """Return a command: a list, or text that is split as a shell would."""
    if isinstance(item, yaml.SequenceNode):
        found = _listed(item)
    else:
        try:
            found = shlex.split(_text(item))
        except ValueError as error:
            raise InputError(f"it cannot be split ({error})", fix="give a list") from None
    if not found:
        raise InputError("it is empty", fix="give what to run")
    return found


def _names(item: yaml.Node) -> list[str]:
    """Return accelerators, as ``v100`` or ``k80=2``: a list, or text with commas."""
    listed = _listed(item) if isinstance(item, yaml.SequenceNode) else _text(item).split(",")
    found = [name(entry) for entry in listed]
    parse_accelerators(found)
    return found


def _variables(item: yaml.Node) -> dict[str, str]:
    return {label: _text(entry) for label, (_, entry) in _members(item).items()}


def _array(item: yaml.Node) -> Mapping[str, tuple[str, ...]]:
    if not isinstance(item, yaml.MappingNode):
        label, values = parse_array(_text(item))
        return {label: values}
    found = {}
    for label, (line, entry) in _members(item).items():
        listed = isinstance(entry, yaml.SequenceNode)
        try:
            values = parse_array(f"{label}={'x' if listed else _text(entry)}")[1]
            found[label] = _values(label, _listed(entry)) if listed else values
        except InputError as error:
            raise error.within(line=line) from None
    return found


def _values(label: str, listed: Sequence[str]) -> tuple[str, ...]:
    if not listed or not all(listed):
        what = "a value is empty" if listed else "it has no values"
        raise InputError(f"{quoted(label)}: {what}", fix="give a list such as [0.1, 0.01]")
    return tuple(listed)


def _as(read: Callable[[object], object]) -> Callable[[yaml.Node], object]:
    return lambda item: read(_text(item))


def _count(value: object) -> int:
    found = number(value)
    if not found.is_integer():
        raise InputError(f"{quoted(value)} is not whole", fix="give a whole number")
    return int(found)


_READERS: Mapping[str, Callable[[yaml.Node], Any]] = {
    "command": _words,
    "name": _text,
    "tenant": _as(name),
    "workload": _text,
    "gang": _as(whole),
    "min_gang": _as(whole),
    "max_gang": _as(whole),
    "multijob": _as(name),
    "steps": _as(_count),
    "weight": _as(number),
    "priority": _as(whole),
    "deadline_s": _as(number),
    "accelerators": _names,
    "memory_gib": _as(number),
    "directory": _text,
    "environment": _variables,
    "retries": _as(whole),
    "grace_s": _as(number),
    "host_memory_gib": _as(number),
    "time_limit_s": _as(number),
    "progress_pattern": _text,
}
FIELDS = (*_READERS, "array")
"""what a file may say"""
