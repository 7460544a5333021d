"""Progress patterns: the regular expressions that are quick to compile and to search for."""

import re

from fairlead.model.errors import InputError

MAX_LENGTH = 200

_TOKENS = re.compile(
    r"""
    (?P<escape>\\.)
    | (?P<class>\[\^?\]?(?:\\.|[^\]\\])*\])
    | (?P<open>\((?:\?:|\?P<\w+>)?(?!\?))
    | (?P<close>\))
    | (?P<extension>\(\?)
    | (?P<either>\|)
    | (?P<quantifier>[*+?]|\{(?:\d+(?:,\d*)?|,\d+)\})
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def check_progress_pattern(pattern: str) -> None:
    """Raise InputError unless a pattern is valid, has one group, and cannot take long.

    Flags, lookarounds and backreferences are refused, and repetitions of a group that contains
    alternatives or other repetitions.
    """
    if len(pattern) > MAX_LENGTH:
        raise _error(f"{len(pattern):,} characters", f"expected at most {MAX_LENGTH}")
    _check_grammar(pattern)
    try:
        groups = re.compile(pattern).groups
    except (re.error, OverflowError, RecursionError) as error:
        fix = r"expected one such as 'step (\d+)'"
        raise _error(f"not a regular expression ({error})", fix) from None
    if groups != 1:
        raise _error(f"{groups} groups", r"expected one, as in 'step (\d+)'")


def _check_grammar(pattern: str) -> None:
    is_ambiguous = [False]
    """open groups → whether the group contains alternatives or quantifiers"""
    before, closed = "", False
    for token in _TOKENS.finditer(pattern):
        kind, text = token.lastgroup or "", token.group()
        if kind == "extension":
            raise _error(f"unsupported: {text!r}", "expected plain groups, (…) or (?:…)")
        if kind == "escape" and text[1] in "123456789":
            raise _error(f"backreference {text!r}", "remove it")
        if kind == "open":
            is_ambiguous.append(False)
        elif kind == "close" and len(is_ambiguous) > 1:
            closed = is_ambiguous.pop()
            is_ambiguous[-1] |= closed
        elif kind == "either":
            is_ambiguous[-1] = True
        elif kind == "quantifier" and before != "quantifier":  # "+?" is one quantifier
            if before == "close" and closed and text != "?":
                raise _error(
                    f"{text!r} repeats a group with repetitions or alternatives",
                    "expected no repetition inside of another",
                )
            is_ambiguous[-1] = True
        before = kind


def _error(problem: str, fix: str) -> InputError:
    return InputError(problem, fix=fix, field="progress_pattern")
