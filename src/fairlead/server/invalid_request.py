"""Problems of requests that pydantic has found, in the form ``<problem>: expected <what>``."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.model.submission.fields import NOT_A_NUMBER, NOT_WHOLE

_FLAG = "not a truth value: expected true or false"
_LIST = 'not a list: expected one such as ["a", "b"]'
_OBJECT = "not an object: expected a JSON object"
_UNKNOWN = "unknown field: see the schema at /openapi.json"
_PROBLEMS = {
    "missing": "missing: expected a value",
    "missing_argument": "missing: expected a value",
    "extra_forbidden": _UNKNOWN,
    "unexpected_keyword_argument": _UNKNOWN,
    "greater_than_equal": "out of range: expected {ge} or more",
    "greater_than": "out of range: expected more than {gt}",
    "less_than_equal": "out of range: expected at most {le}",
    "less_than": "out of range: expected less than {lt}",
    "int_parsing": NOT_WHOLE,
    "int_type": NOT_WHOLE,
    "int_from_float": NOT_WHOLE,
    "float_parsing": NOT_A_NUMBER,
    "float_type": NOT_A_NUMBER,
    "finite_number": "not finite: expected a number such as 2.5",
    "bool_parsing": _FLAG,
    "bool_type": _FLAG,
    "string_type": "not text: expected a string",
    "string_too_short": "too short: expected {min_length} or more characters",
    "string_too_long": "too long: expected at most {max_length} characters",
    "string_pattern_mismatch": "not allowed: expected text that matches {pattern}",
    "too_short": "too short: expected {min_length} or more entries",
    "too_long": "too long: expected at most {max_length} entries",
    "list_type": _LIST,
    "tuple_type": _LIST,
    "set_type": _LIST,
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "dataclass_type": _OBJECT,
    "literal_error": "unknown value: expected {expected}",
    "enum": "unknown value: expected {expected}",
    "value_error": "{error}",
    "assertion_error": "{error}",
}
"""type of a pydantic error → problem and fix, with the values of its context"""
_LIMITS = {"greater_than_equal", "greater_than", "less_than_equal", "less_than"}
_KEY = "[key]"
"""pydantic's last part of a place for a key of an object, which it names before"""
_MAX_KEY = 40


def field_name(place: Sequence[str | int]) -> str:
    """Return the name of a field inside others, ``jobs[17].gang``; a key's is its object's."""
    if place and place[-1] == _KEY:
        place = place[:-2]
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return "".join(parts).removeprefix(".")


def problem_of(error: Mapping[str, Any]) -> str:
    """Return the problem and the fix of a pydantic error; never the refused value."""
    place = error["loc"]
    if place and place[-1] == _KEY:
        return f"key {str(place[-2])[:_MAX_KEY]!r}: {_value_problem_of(error)}"
    return _value_problem_of(error)


def _value_problem_of(error: Mapping[str, Any]) -> str:
    if error["type"] in _LIMITS and _is_nan(error["input"]):
        return NOT_A_NUMBER  # pydantic names a limit that it has not compared
    form = _PROBLEMS.get(error["type"])
    if form is None:
        return str(error["msg"])
    context = error.get("ctx", {})
    return form.format(**{key: _plain(value) for key, value in context.items()})


def _is_nan(value: object) -> bool:
    """Return whether pydantic reads a value, which may be a text, as NaN."""
    return str(value).strip("+- ").lower() == "nan"


def _plain(value: object) -> object:
    return f"{value:g}" if isinstance(value, float) else value


def json_problem_of(error: Mapping[str, Any]) -> str:
    """Return the problem of a body that is not JSON, with its place."""
    reason = str(error.get("ctx", {}).get("error", "unreadable"))
    return f"request body: not JSON: {reason} (at character {error['loc'][-1]})"
