"""Strict JSON: no duplicate keys, no NaN, no deep nesting."""

import json
from collections.abc import Collection
from typing import NoReturn

from fairlead.files.parsing.fields import quote, unknown_name_error
from fairlead.model.errors import InputError


def parse(body: str, *, source: str, line: int | None = None) -> object:
    """Return the JSON value; ``line`` is the line of the file if the text is one line of it."""
    try:
        return _DECODER.decode(body)
    except InputError as error:
        raise error.within(source=source, line=line) from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"invalid JSON ({error.msg} at column {error.colno})",
            fix="correct it there",
            source=source,
            line=line if line is not None else error.lineno,
        ) from None
    except (RecursionError, ValueError):  # nested too deeply, or too many digits
        raise InputError(
            "JSON nested too deeply or with a number too long",
            fix="expected plain objects and numbers",
            source=source,
            line=line,
        ) from None


def members(
    value: object, *, required: Collection[str], optional: Collection[str] = ()
) -> dict[str, object]:
    """Return the members of a JSON object; missing and unknown members are errors.

    A member that is null counts as absent.
    """
    present = {key: entry for key, entry in mapping(value).items() if entry is not None}
    for key in present:
        if key not in required and key not in optional:
            raise unknown_name_error("field", key, dict.fromkeys([*required, *optional]))
    for key in required:
        if key not in present:
            raise InputError("missing", fix=f"expected {', '.join(required)}", field=key)
    return present


def mapping(value: object) -> dict[str, object]:
    """Return a JSON object, or raise InputError for any other value."""
    if not isinstance(value, dict):
        raise InputError(f"not a JSON object: {quote(value)}", fix='expected {"name": value, …}')
    return value


def array(value: object) -> list[object]:
    """Return a JSON list, or raise InputError for any other value."""
    if not isinstance(value, list):
        raise InputError(f"not a list: {quote(value)}", fix="expected [ … ]")
    return value


def _reject_duplicate_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members_by_key = dict(pairs)
    if len(members_by_key) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InputError(f"duplicate field {quote(key)}", fix="remove one")
            seen.add(key)
    return members_by_key


def _reject_nan(text: str) -> NoReturn:
    raise InputError(f"not finite: {text}", fix="expected a finite number or null")


_DECODER = json.JSONDecoder(object_pairs_hook=_reject_duplicate_keys, parse_constant=_reject_nan)
