"""Plain values of options and arguments, converted without pydantic.

Typer 0.29 converts every value with pydantic, which takes as long to load as numpy. Here are the
values that need no judgement; Typer converts all others, and words the errors.
"""

import os
import re
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_origin

_WHOLE = re.compile("-?[0-9]{1,15}")
_DECIMAL = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")


class _NotPlainError(Exception):
    """A value that Typer has to convert or refuse."""


# Typer does not export the classes of contexts and parameters: they are Any here.
def convert_plain_values(parameter: Any) -> None:
    """Make a parameter of a command convert plain values itself."""
    # Earlier versions of Typer have no descriptors of types, and load no pydantic.
    if hasattr(parameter, "type_descriptor"):
        parameter.process_value = partial(_process, parameter)


def _process(parameter: Any, context: Any, value: object) -> Any:
    """Return the converted value, as the parameter's own ``process_value`` does."""
    try:
        converted = _converted(parameter, parameter.type_descriptor.annotation, value)
    except (_NotPlainError, AttributeError):  # the latter with another version of Typer
        return type(parameter).process_value(parameter, context, value)
    if parameter.callback is not None:
        return parameter.callback(context, parameter, converted)
    return converted


def _converted(parameter: Any, type_: Any, value: object) -> object:
    if value in (None, (), []) and parameter.required:
        raise _NotPlainError
    if parameter.type_descriptor.parameter_info.parser is not None:
        raise _NotPlainError
    if value is None:
        return () if parameter.multiple or parameter.nargs == -1 else None
    if get_origin(type_) is list and isinstance(value, (list, tuple)):
        (item_type,) = get_args(type_)
        return [_converted(parameter, item_type, item) for item in value]
    if type_ is bool and type(value) is bool:
        return value
    if type_ is str and type(value) is str:
        return value
    if type_ in (int, float):
        return _number(parameter, type_, value)
    if type_ is Path:
        return _path(parameter, value)
    if isinstance(type_, type) and issubclass(type_, Enum):
        return _choice(type_, value)
    raise _NotPlainError


def _number(parameter: Any, type_: type[int] | type[float], value: object) -> float:
    if type(value) is str and (_WHOLE if type_ is int else _DECIMAL).fullmatch(value):
        number = type_(value)
    elif type(value) is type_:
        number = value
    else:
        raise _NotPlainError
    least, most = parameter.min, parameter.max
    if (least is None or number >= least) and (most is None or number <= most):
        return number
    raise _NotPlainError


def _path(parameter: Any, value: object) -> Path:
    info = parameter.type_descriptor.parameter_info
    checked = info.exists or info.writable or not (info.file_okay and info.dir_okay)
    changed = info.resolve_path or info.allow_dash or info.path_type is not None
    if checked or changed or type(value) is not str or "\0" in value:
        raise _NotPlainError
    if os.path.exists(value) and not os.access(value, os.R_OK):
        raise _NotPlainError
    return Path(value)


def _choice(type_: type[Enum], value: object) -> Enum:
    for choice in type_:
        if value is choice or (type(value) is str and value == choice.value):
            return choice
    raise _NotPlainError
