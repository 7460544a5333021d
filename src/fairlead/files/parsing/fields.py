"""Single values: cells of a table or of JSON as numbers and names, or one InputError."""

import difflib
import math
from collections.abc import Iterable

from fairlead.files.parsing.text import shortened
from fairlead.model.errors import InputError

MAX_NAME = 128
MAX_COUNT = 1_000_000


def quoted(value: object) -> str:
    """Return the offending input as a message shows it: on one line, at most 60 characters."""
    if isinstance(value, str):
        return f"'{shortened(value, 58)}'"
    if isinstance(value, dict | list | tuple):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**50:
        return "a number of more than 50 digits"  # Python itself refuses to print the longest
    return shortened(repr(value), 60)


def number(value: object) -> float:
    """Return a finite number, written as a number or as text."""
    if type(value) is str:
        try:
            found = float(value)
        except ValueError:
            raise _unreadable(value) from None
        # float() also takes 1_000 and other scripts' digits, which no writer of traces means.
        if "_" in value or not value.isascii():
            raise _unreadable(value)
    elif type(value) in (int, float):
        try:
            found = float(value)  # type: ignore[arg-type]  # mypy does not narrow by "in"
        except OverflowError:
            found = math.inf
    else:
        raise InputError(f"{quoted(value)} is not a number", fix="give a number such as 2.5")
    if -math.inf < found < math.inf:
        return found
    raise InputError(f"{quoted(value)} is not finite", fix="give a finite number")


def _unreadable(text: str) -> InputError:
    fix = "give a number such as 2.5"
    if "d" in text.lower() and _reads(text.lower().replace("d", "e")):
        fix = "write the exponent with e, as in 1.5e3"
    elif "," in text and _reads(text.replace(",", ".", 1)):
        fix = "write a decimal point and no thousands separators"
    return InputError(f"{quoted(text)} is not a number", fix=fix)


def _reads(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def whole(value: object) -> int:
    """Return a whole number of at most a million in size."""
    if type(value) is int and -MAX_COUNT <= value <= MAX_COUNT:
        return value
    found = number(value)
    if not found.is_integer():
        raise InputError(f"{quoted(value)} is not whole", fix="give a whole number")
    if abs(found) > MAX_COUNT:
        raise InputError(f"{quoted(value)} is too large", fix=f"give at most {MAX_COUNT:,}")
    return int(found)


def speed(value: object) -> float:
    """Return steps per second: finite, 0 or more."""
    found = number(value)
    if found < 0:
        raise InputError(f"{quoted(value)} is negative", fix="give steps per second, 0 or more")
    return found


def name(value: object) -> str:
    """Return a name: text on one line, trimmed, of at most 128 characters."""
    if type(value) is int and abs(value) < 10**50:
        value = str(value)
    if not isinstance(value, str):
        raise InputError(f"{quoted(value)} is not a name", fix="give text")
    found = value.strip()
    if 0 < len(found) <= MAX_NAME and found.isprintable():
        return found
    if not found:
        raise InputError("the name is empty", fix="give one")
    if len(found) > MAX_NAME:
        raise InputError(
            f"{quoted(found)} has {len(found):,} characters", fix=f"use at most {MAX_NAME}"
        )
    raise InputError(f"{quoted(found)} holds unprintable characters", fix="remove them")


def accelerator(value: object) -> str:
    """Return an accelerator's name: one that the plain cluster text can also write."""
    found = name(value)
    if any(c in ",;=/" or c.isspace() for c in found):
        raise InputError(
            f"{quoted(found)} is not an accelerator's name",
            fix="use letters, digits, '-', '_', '.', as in h200-3g.71gb",
        )
    return found


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known name most like the word, if one is like it at all."""
    choices = {k.lower(): k for k in known}
    close = difflib.get_close_matches(word.lower()[:MAX_NAME], choices, n=1, cutoff=0.6)
    return choices[close[0]] if close else None


def unknown(kind: str, word: str, known: Iterable[str]) -> InputError:
    """Return the error for a name that is not among those known, with the nearest of them."""
    names = list(known)
    close = nearest(word, names)
    listed = shortened(", ".join(names), 200)
    fix = f"did you mean {close!r}?" if close else f"use one of: {listed}"
    return InputError(f"unknown {kind} {quoted(word)}", fix=fix)


def plain(value: float) -> str:
    """Return the shortest text that reads back as the same number, whole ones without .0."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
