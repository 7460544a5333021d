"""Readers of single values: numbers and names from cells of a table or from JSON."""

import difflib
import math
from collections.abc import Callable, Iterable

from fairlead.files.parsing.text import shorten
from fairlead.model.errors import InputError
from fairlead.model.submission import bounds

MAX_NAME = 128
MAX_COUNT = 1_000_000
_MAX_LISTED = 40
"""known names that the error for an unknown one lists"""


def quote(value: object) -> str:
    """Return a value for an error message: on one line, at most 60 characters."""
    if isinstance(value, str):
        return f"'{shorten(value, 58)}'"
    if isinstance(value, dict | list | tuple):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**50:
        return "a number of more than 50 digits"  # Python refuses to print the longest
    return shorten(repr(value), 60)


def number(value: object) -> float:
    """Return a finite number from a number or a text."""
    if type(value) is str:
        try:
            result = float(value)
        except ValueError:
            raise _unreadable(value) from None
        # float() also accepts 1_000 and digits of other scripts, which are mistakes in a trace.
        if "_" in value or not value.isascii():
            raise _unreadable(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            result = float(value)
        except OverflowError:
            result = math.inf
    else:
        raise InputError(f"not a number: {quote(value)}", fix="expected a number such as 2.5")
    if -math.inf < result < math.inf:
        return result
    raise InputError(f"not finite: {quote(value)}", fix="expected a finite number")


def _unreadable(text: str) -> InputError:
    fix = "expected a number such as 2.5"
    if "d" in text.lower() and _reads(text.lower().replace("d", "e")):
        fix = "expected an exponent with e, as in 1.5e3"
    elif "," in text and _reads(text.replace(",", ".", 1)):
        fix = "expected a decimal point and no thousands separators"
    return InputError(f"not a number: {quote(text)}", fix=fix)


def _reads(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def within(low: float, high: float) -> Callable[[object], float]:
    """Return a reader of numbers that refuses those above 0 outside of these bounds.

    Its callers check the sign of a number, with a message of their own.
    """

    def read(value: object) -> float:
        result = number(value)
        if result > high or 0 < result < low:
            raise InputError(f"out of range: {quote(value)}", fix=f"expected {low:g} to {high:g}")
        return result

    return read


weight = within(bounds.MIN_WEIGHT, bounds.MAX_WEIGHT)
seconds = within(bounds.MIN_SECONDS, bounds.MAX_SECONDS)
gibibytes = within(bounds.MIN_GIB, bounds.MAX_GIB)
steps = within(bounds.MIN_STEPS_LEFT, bounds.MAX_STEPS_LEFT)
quota = within(bounds.MIN_QUOTA, bounds.MAX_QUOTA)
_speed = within(bounds.MIN_SPEED, bounds.MAX_SPEED)


def whole_number(value: object) -> int:
    """Return a whole number from -1,000,000 to 1,000,000."""
    result = any_whole_number(value)
    if abs(result) > MAX_COUNT:
        raise InputError(f"too large: {quote(value)}", fix=f"expected at most {MAX_COUNT:,}")
    return result


def any_whole_number(value: object) -> int:
    """Return a whole number of any size."""
    if type(value) is int:
        return value
    try:
        result = number(value)
    except InputError as error:
        if not error.problem.startswith("not a number"):
            raise
        fix = "expected a whole number such as 4"
        raise InputError(error.problem, fix=fix) from None
    if not result.is_integer():
        raise InputError(f"not a whole number: {quote(value)}", fix="expected one such as 4")
    return int(result)


def speed(value: object) -> float:
    """Return steps per second: 0, or within the bounds of speeds."""
    if type(value) is float and bounds.MIN_SPEED <= value <= bounds.MAX_SPEED:
        return value  # as most of the numbers in a table, of which there are thousands
    result = _speed(value)
    if result < 0:
        raise InputError(f"negative: {quote(value)}", fix="expected steps per second, 0 or more")
    return result


def name(value: object) -> str:
    """Return a name: text on one line, trimmed, of at most 128 characters."""
    if type(value) is int and abs(value) < 10**50:
        value = str(value)
    if not isinstance(value, str):
        raise InputError(f"not a name: {quote(value)}", fix="expected text")
    result = value.strip()
    if 0 < len(result) <= MAX_NAME and result.isprintable():
        return result
    if not result:
        raise InputError("empty", fix="expected a name")
    if len(result) > MAX_NAME:
        raise InputError(
            f"{len(result):,} characters: {quote(result)}", fix=f"expected at most {MAX_NAME}"
        )
    raise InputError(f"unprintable characters: {quote(result)}", fix="remove them")


def accelerator(value: object) -> str:
    """Return an accelerator's name, without the separators of the cluster text."""
    result = name(value)
    if any(c in ",;=/" or c.isspace() for c in result):
        raise InputError(
            f"not an accelerator's name: {quote(result)}",
            fix="expected letters, digits, '-', '_', '.', as in h200-3g.71gb",
        )
    return result


def closest_name(word: str, known: Iterable[str]) -> str | None:
    """Return the known name most similar to the word, None if none is similar."""
    choices = {k.lower(): k for k in known}
    close = difflib.get_close_matches(word.lower()[:MAX_NAME], choices, n=1, cutoff=0.6)
    return choices[close[0]] if close else None


def unknown_name_error(noun: str, word: str, known: Iterable[str]) -> InputError:
    """Return the error for an unknown name; the fix is the closest known one, or lists them."""
    names = list(known)
    close = closest_name(word, names)
    listed = ", ".join(shorten(name) for name in names[:_MAX_LISTED])
    if len(names) > _MAX_LISTED:
        listed += f" and {len(names) - _MAX_LISTED} more"
    fix = f"did you mean {close!r}?" if close else f"expected one of: {listed}"
    return InputError(f"unknown {noun} {quote(word)}", fix=fix)


def format_number(value: float) -> str:
    """Return the shortest text that reads back as the same number; whole numbers without .0."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
