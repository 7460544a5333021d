"""Language check: lists phrases that Fairlead's text must not use.

``python tools/language/check.py`` reads the phrases in ``phrases.txt`` and the words in the
third column of the glossary, and searches source, tests, benchmarks and documentation.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
FOLDERS = ("src", "tests", "benchmarks", "docs", "examples", "tools")
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
SUFFIXES = {".py", ".md", ".c", ".js"}
GLOSSARY = ROOT / "docs/reference/glossary.md"
ALLOWED = "lang: ok"
_IMPORT = re.compile(r"\s*(from|import) ")


def main() -> int:
    """Print every line that breaks a rule; return 1 if there is one."""
    rules = [*phrases((HERE / "phrases.txt").read_text(encoding="utf-8")), *old_words()]
    broken = 0
    for path in files():
        for number, phrase, line in violations(path.read_text(encoding="utf-8"), rules):
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


def violations(text: str, rules: Sequence[re.Pattern[str]]) -> Iterator[tuple[int, str, str]]:
    """Yield (line number, phrase, line) for each line that breaks a rule."""
    for number, line in enumerate(text.splitlines(), 1):
        if _IMPORT.match(line) or line.rstrip().endswith(ALLOWED):
            continue
        for rule in rules:
            match = rule.search(line)
            if match:
                yield number, match[0], line.strip()
                break


if __name__ == "__main__":
    sys.exit(main())
