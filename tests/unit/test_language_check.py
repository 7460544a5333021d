"""The language check finds with its index of texts the lines that all rules on all lines find."""

import re
from collections.abc import Sequence

import pytest
from tools.language import check

RULES = [
    *check.phrases((check.HERE / "phrases.txt").read_text(encoding="utf-8")),
    *check.old_words(),
]
PROSE = "\n".join(
    [
        "import strangers",  # lang: ok
        "It is TOLD TO leave; the lea\u017fe is over.  # lang: ok",  # lang: ok
        "It is TOLD TO leave; the lea\u017fe is over.",  # lang: ok
        "    # What it said is known. It go\u0130ng on, and goes on.",  # lang: ok
        "one a line\x0bshelf = Sifter()\u2028a Shelf, the bea\u212a",  # lang: ok
        "found = 3\r\nkind = 4",  # lang: ok
    ]
)


def matching_lines(text: str, rules: Sequence[re.Pattern[str]]) -> list[tuple[int, str]]:
    """Return line number and phrase of each line that breaks a rule, by trying all of them."""
    found = []  # lang: ok
    for number, line in enumerate(text.splitlines(), 1):
        matches = [match for rule in rules if (match := rule.search(line))]
        is_checked = not re.match(r"\s*(from|import) ", line) and not line.endswith(check.ALLOWED)
        if matches and is_checked:
            found.append((number, matches[0][0]))
    return found


@pytest.mark.parametrize("text", [check.GLOSSARY.read_text(encoding="utf-8"), PROSE])
def test_the_index_misses_no_line(text: str) -> None:
    expected = matching_lines(text, RULES)
    assert len(expected) > 4
    violations = check.violations(text, RULES, check.index_of(RULES))
    assert [(number, phrase) for number, phrase, _ in violations] == expected


@pytest.mark.parametrize("pattern", [r"\w+", "é", "(a|é)b?", ""])
def test_a_rule_without_a_known_text_is_applied_to_every_line(pattern: str) -> None:
    rules = [re.compile(pattern, re.IGNORECASE)]
    violations = check.violations("x\nÉ a\n\n", rules, check.index_of(rules))
    numbers = [number for number, _, _ in violations]
    assert numbers == [number for number, _ in matching_lines("x\nÉ a\n\n", rules)]
