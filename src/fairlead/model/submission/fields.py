"""Declared fields: type, limits and help text, read from a dataclass's annotations.

An interface (command line, job file, REST message) derives its part of a field from the
`DeclaredField`. Pydantic reads the same annotations; this module does not import it, because
`fairlead --help` must stay fast.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Interval, Len

from fairlead.model.errors import InputError


@dataclass(frozen=True, slots=True)
class About:
    """Help text of a field and its appearance on the command line."""

    help: str
    group: str | None = None
    """heading under which ``--help`` lists the option"""
    option: str = ""
    """command-line option, if it is not the field's name"""
    default: str = ""
    """description of the default, if the value does not show it"""
    is_path: bool = False
    is_repeatable: bool = False
    """whether the command line takes one value of a list per option"""
    is_option: bool = True
    """whether users set it, on the command line and in job files; otherwise the client does"""

    def __get_pydantic_json_schema__(
        self, core_schema: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        return {**handler(core_schema), "description": self.help}


@dataclass(frozen=True, slots=True)
class Matches:
    """Regular expression that a text must match."""

    pattern: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        return {**handler(source), "pattern": self.pattern}


NOT_WHOLE = "not a whole number: expected one such as 4"
NOT_A_NUMBER = "not a number: expected one such as 2.5"


@dataclass(frozen=True, slots=True)
class JsonNumber:
    """Refuses what pydantic takes for numbers: true, false, texts and NaN; follows the limits."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        schema = handler(source)
        problem = NOT_WHOLE if source is int else NOT_A_NUMBER
        expected = _range_text(_limits_of(schema))

        def refuse_others(value: object) -> object:
            # Pydantic collects no TypeErrors.
            if isinstance(value, bool | str):
                raise ValueError(problem)
            if isinstance(value, float) and math.isnan(value):
                raise ValueError(f"out of range: nan: expected {expected}")
            return value

        function = {"type": "no-info", "function": refuse_others}
        return {"type": "function-before", "function": function, "schema": schema}


@dataclass(frozen=True, slots=True)
class DeclaredField:
    """One field as its class declares it."""

    name: str
    type: type
    """``int``, ``float``, ``bool``, ``str``, ``tuple`` or ``Mapping``"""
    about: About
    limits: Interval | None
    length: Len | None
    default: Any
    """``dataclasses.MISSING`` for a required field"""
    choices: tuple[str, ...] = ()
    """the only values of a text; empty: any"""

    @property
    def is_required(self) -> bool:
        """Whether the field has no default."""
        return self.default is dataclasses.MISSING

    def check(self, value: Any) -> None:
        """Raise InputError if a number is outside the declared limits, or a text no choice."""
        if self.choices and value not in self.choices:
            fix = f"expected {', '.join(self.choices[:-1])} or {self.choices[-1]}"
            raise InputError(f"unknown: {value!r}", fix=fix, field=self.name)
        limits = self.limits
        if value is None or limits is None or _is_within(value, limits):
            return
        raise InputError(
            f"out of range: {value!r}", fix=f"expected {_range_text(limits)}", field=self.name
        )

    def clamp(self, value: Any) -> Any:
        """Return a number within the declared limits; the default instead of NaN."""
        limits = self.limits
        if value is None or limits is None or _is_within(value, limits):
            return value
        if value != value:  # noqa: PLR0124  # NaN
            return self.default
        return limits.ge if value < limits.ge else limits.le


@cache
def declared_fields(owner: type) -> tuple[DeclaredField, ...]:
    """Return the fields of a dataclass that have an ``About`` annotation, in their order."""
    listed = []
    for item in dataclasses.fields(owner):
        base, notes = _unwrap(item.type)
        choices = next((get_args(note) for note in notes if get_origin(note) is Literal), ())
        about = next((note for note in notes if isinstance(note, About)), None)
        if about is None:
            continue
        default = item.default
        if item.default_factory is not dataclasses.MISSING:
            default = item.default_factory()
        limits = next((note for note in notes if isinstance(note, Interval)), None)
        length = next((note for note in notes if isinstance(note, Len)), None)
        listed.append(DeclaredField(item.name, base, about, limits, length, default, choices))
    return tuple(listed)


def _unwrap(hint: Any) -> tuple[type, list[object]]:
    """Return the plain type of an annotation, without None, and all of its metadata."""
    origin = get_origin(hint)
    if origin is Annotated:
        inner, *notes = get_args(hint)
        base, inner_notes = _unwrap(inner)
        return base, [*notes, *inner_notes]
    if origin is Literal:
        return str, [hint]
    if origin in (Union, UnionType):
        (inner,) = (part for part in get_args(hint) if part is not NoneType)
        return _unwrap(inner)
    return (Mapping if origin is Mapping else origin or hint), []


def _is_within(value: Any, limits: Interval) -> bool:
    # Every comparison with NaN is false, so NaN is outside all limits.
    return bool(
        (limits.ge is None or value >= limits.ge)
        and (limits.gt is None or value > limits.gt)
        and (limits.le is None or value <= limits.le)
        and (limits.lt is None or value < limits.lt)
    )


def _limits_of(schema: Mapping[str, Any]) -> Interval:
    """Return the limits of the number that a schema of pydantic is about."""
    while "schema" in schema:  # of a function that checks the number
        schema = schema["schema"]
    return Interval(**{name: schema.get(name) for name in ("ge", "gt", "le", "lt")})


def _range_text(limits: Interval) -> str:
    bounds = (("at least", limits.ge), ("more than", limits.gt), ("at most", limits.le),
              ("less than", limits.lt))  # fmt: skip
    return " and ".join(f"{word} {_shown(bound)}" for word, bound in bounds if bound is not None)


def _shown(bound: object) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"
