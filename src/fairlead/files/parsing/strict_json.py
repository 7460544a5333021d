"""JSON without its ambiguities: no repeated keys, no NaN, no runaway nesting."""

import json
from collections.abc import Collection
from typing import NoReturn

from fairlead.files.parsing.fields import quoted, unknown
from fairlead.model.errors import InputError


def parse(body: str, *, source: str, line: int | None = None) -> object:
    """Return the JSON value; ``line`` is where the text begins when it is one line of a file."""
    try:
        return _DECODER.decode(body)
    except InputError as error:
        raise error.within(source=source, line=line) from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"it is not JSON ({error.msg} at column {error.colno})",
            fix="correct it there",
            source=source,
            line=line if line is not None else error.lineno,
        ) from None
    except (RecursionError, ValueError):  # nested too deeply, or digits without end
        raise InputError(
            "its JSON is nested too deeply or holds a number too long",
            fix="give plain objects and numbers",
            source=source,
            line=line,
        ) from None


def members(
    value: object, *, required: Collection[str], optional: Collection[str] = ()
) -> dict[str, object]:
    """Return the members of a JSON object that has the required and no unknown ones.

    A member that is null counts as absent.
    """
    found = {key: held for key, held in mapping(value).items() if held is not None}
    for key in found:
        if key not in required and key not in optional:
            raise unknown("field", key, [*required, *optional])
    for key in required:
        if key not in found:
            raise InputError(
                f"{key!r} is missing", fix=f"the fields needed are {', '.join(required)}"
            )
    return found


def mapping(value: object) -> dict[str, object]:
    """Return a JSON object, or raise InputError for any other value."""
    if not isinstance(value, dict):
        raise InputError(f"{quoted(value)} is not a JSON object", fix='give {"name": value, …}')
    return value


def array(value: object) -> list[object]:
    """Return a JSON list, or raise InputError for any other value."""
    if not isinstance(value, list):
        raise InputError(f"{quoted(value)} is not a list", fix="give [ … ]")
    return value


def _reject_duplicate_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InputError(f"{quoted(key)} is given twice", fix="remove one")
            seen.add(key)
    return found


def _reject_nan(text: str) -> NoReturn:
    raise InputError(f"{text} is not a finite number", fix="give a finite number or null")


_DECODER = json.JSONDecoder(object_pairs_hook=_reject_duplicate_keys, parse_constant=_reject_nan)
