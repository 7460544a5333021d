"""Language check: lists phrases that Fairlead's text must not use.

``python tools/language/check.py`` reads the phrases in ``phrases.txt`` and the words in the
third column of the glossary, and searches source, tests, benchmarks and documentation.

Most rules match few lines, so each is applied only to lines with a text that its matches contain.
"""

import re
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
FOLDERS = ("src", "tests", "benchmarks", "docs", "examples", "tools")
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
SUFFIXES = {".py", ".md", ".c", ".js"}
GLOSSARY = ROOT / "docs/reference/glossary.md"
ALLOWED = "lang: ok"
_IMPORT = re.compile(r"\s*(from|import) ")
_ALIKE = str.maketrans("\u0130\u0131\u017f\u212a", "iisk")
"""letters that case-insensitive rules take for ASCII letters and ``str.lower`` does not"""
_MAX_TEXTS = 64
"""alternatives that are searched for instead of a rule"""

Index = Mapping[str, Sequence[int]]
"""text in lower case → positions of the rules whose matches may contain it"""


def main() -> int:
    """Print every line that breaks a rule; return 1 if there is one."""
    rules = [*phrases((HERE / "phrases.txt").read_text(encoding="utf-8")), *old_words()]
    index = index_of(rules)
    broken = 0
    for path in files():
        for number, phrase, line in violations(path.read_text(encoding="utf-8"), rules, index):
            broken += 1
            sys.stdout.write(f"{path.relative_to(ROOT)}:{number}: {phrase!r} in: {line}\n")
    if broken:
        sys.stdout.write(f"{broken} lines: see CONTRIBUTING.md and docs/reference/glossary.md\n")
    return 1 if broken else 0


def phrases(text: str) -> Iterator[re.Pattern[str]]:
    """Yield the regular expressions of a list; ``cs:`` marks those that are case-sensitive."""
    for line in text.splitlines():
        if line.startswith("cs:"):
            yield re.compile(line.removeprefix("cs:"))
        elif line and not line.startswith("#"):
            yield re.compile(line, re.IGNORECASE)


def old_words(page: Path = GLOSSARY) -> Iterator[re.Pattern[str]]:
    """Yield the words and phrases in the glossary's "not" column."""
    table, _, _ = page.read_text(encoding="utf-8").partition("## Wire names")
    for line in table.splitlines():
        cells = line.split("|")
        if len(cells) != 5 or "---" in line:
            continue
        for word in re.findall(r"`([^`]+)`", cells[3]):
            yield re.compile(rf"(?<![\w`]){re.escape(word)}(?!\w)")
        for phrase in re.findall(r"\"([^\"]+)\"", cells[3]):
            yield re.compile(rf"\b{re.escape(phrase)}\b", re.IGNORECASE)


def files() -> Iterator[Path]:
    """Yield the files to check, sorted."""
    for name in PAGES:
        yield ROOT / name
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            own = path not in (GLOSSARY, HERE / "check.py") and "vendor" not in path.parts
            if path.suffix in SUFFIXES and own:
                yield path


def violations(
    text: str, rules: Sequence[re.Pattern[str]], index: Index
) -> Iterator[tuple[int, str, str]]:
    """Yield (line number, phrase, line) for each line that breaks a rule."""
    lines = text.splitlines(keepends=True)
    for at, candidates in sorted(_candidates(text, lines, index).items()):
        line = lines[at].splitlines()[0]
        if _IMPORT.match(line) or line.rstrip().endswith(ALLOWED):
            continue
        matches = (rules[number].search(line) for number in sorted(candidates))
        match = next(filter(None, matches), None)
        if match:
            yield at + 1, match[0], line.strip()


def _candidates(text: str, lines: Sequence[str], index: Index) -> Mapping[int, set[int]]:
    """Return position of a line → rules that may match in it."""
    lower = text.translate(_ALIKE).lower()
    ends = list(accumulate(map(len, lines)))
    candidates: defaultdict[int, set[int]] = defaultdict(set)
    for needle, numbers in index.items():
        start = lower.find(needle)
        while 0 <= start < len(lower):
            at = bisect_right(ends, start)
            candidates[at].update(numbers)
            start = lower.find(needle, ends[at])
    return candidates


def index_of(rules: Sequence[re.Pattern[str]]) -> Index:
    """Return the texts to search for before the rules are applied."""
    parse = import_module("re._parser").parse
    index: defaultdict[str, list[int]] = defaultdict(list)
    for number, rule in enumerate(rules):
        needles = _contained(parse(rule.pattern, rule.flags))
        for needle in needles:
            if not any(other in needle for other in needles - {needle}):
                index[needle].append(number)
    return index


def _contained(parts: Iterable[tuple[Any, Any]]) -> frozenset[str]:
    """Return texts in lower case, of which each match of an expression contains at least one."""
    best = run = frozenset({""})
    for operation, argument in parts:
        texts = _texts(operation, argument)
        if texts is not None and len(run) * len(texts) <= _MAX_TEXTS:
            run = frozenset(before + text for before in run for text in texts)
            continue
        inside = frozenset({""})
        if str(operation) == "SUBPATTERN":
            inside = _contained(argument[-1])
        elif str(operation) == "BRANCH":
            inside = frozenset[str]().union(*map(_contained, argument[1]))
        best = max(best, run, inside, key=_shortest)
        run = frozenset({""})
    return max(best, run, key=_shortest)


def _shortest(texts: frozenset[str]) -> int:
    return min(map(len, texts))


def _texts(operation: Any, argument: Any) -> frozenset[str] | None:
    """Return all texts, in lower case, that a part of an expression matches; None if unknown."""
    match str(operation):
        case "AT" | "ASSERT" | "ASSERT_NOT":  # match a position
            return frozenset({""})
        case "LITERAL" if argument < 128:
            return frozenset({chr(argument).lower()})
        case "SUBPATTERN":
            return _texts_of_all(argument[-1])
        case "MAX_REPEAT" if argument[:2] == (0, 1):
            texts = _texts_of_all(argument[2])
            return None if texts is None else texts | {""}
        case "IN":
            return _union(_texts(*each) for each in argument)
        case "BRANCH":
            return _union(map(_texts_of_all, argument[1]))
    return None


def _texts_of_all(parts: Iterable[tuple[Any, Any]]) -> frozenset[str] | None:
    result = frozenset({""})
    for operation, argument in parts:
        texts = _texts(operation, argument)
        if texts is None or len(result) * len(texts) > _MAX_TEXTS:
            return None
        result = frozenset(before + text for before in result for text in texts)
    return result


def _union(alternatives: Iterable[frozenset[str] | None]) -> frozenset[str] | None:
    result = frozenset[str]()
    for texts in alternatives:
        if texts is None:
            return None
        result |= texts
    return result


if __name__ == "__main__":
    sys.exit(main())
