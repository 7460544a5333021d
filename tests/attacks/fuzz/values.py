"""Edge values of numbers and texts, and the JSON of hostile documents."""

import json
from random import Random
from typing import Any

NUMBERS: tuple[Any, ...] = (
    0, -0.0, -1, 1, 0.5, 5e-324, 1e-300, 2.2e-308, 1e308, 1.8e308, -1e308, 2**31, 2**53 + 1,
    2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**30, 10**400, float("nan"), float("inf"),
    -float("inf"), True, False, 1e15, 1e12,
)  # fmt: skip
TEXTS = (
    "", " ", "0", "-1", "NaN", "1e999", "null", "x" * 200, "x" * 100_000, "\x00", "a\nb",
    "\x1b[2J",
    "\u202egnp.exe", "é" * 64, "😀" * 50, "\ud800", "../../etc/passwd", "/etc/shadow", "{}",
    "%s%n",
    "{index}", "'; drop table jobs; --", "$(reboot)", "(a+)+$", "[" * 60, "default", "\u2028", "٣",
)  # fmt: skip


def edge_value(rng: Random, depth: int = 0) -> Any:
    """Return a number, text, null, list or object that a field may not expect."""
    form = rng.choices(("number", "text", "null", "list", "object"), (8, 6, 1, 2, 2))[0]
    if form == "number":
        return rng.choice(NUMBERS)
    if form == "text":
        return rng.choice(TEXTS)
    if form == "null" or depth > 2:
        return None
    size = rng.choice((0, 1, 2, 5))
    if form == "list":
        return [edge_value(rng, depth + 1) for _ in range(size)]
    return {str(rng.choice(TEXTS))[:100]: edge_value(rng, depth + 1) for _ in range(size)}


def as_json(value: Any) -> bytes:
    """Return a value as JSON in which NaN, infinities and lone surrogates stay."""
    return json.dumps(value).encode()


def mutated(rng: Random, base: dict[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    """Return a message with edge values in up to three fields, some missing and some unknown."""
    changed = dict(base)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        name = rng.choice((*fields, "unknown") if rng.random() < 0.1 else fields)
        if rng.random() < 0.05:
            changed.pop(name, None)
        else:
            changed[name] = edge_value(rng)
    return changed


def hostile_json(rng: Random, base: dict[str, Any], deepest: int = 20_000) -> bytes:
    """Return a document that is damaged, nested too deep, of a wrong type, or has edge values."""
    form = rng.randrange(10)
    if form < 5:
        return as_json(mutated(rng, base, tuple(base) or ("unknown",)))
    text = as_json(base)
    if form == 5:
        return text[: rng.randrange(len(text))]
    if form == 6:
        return rng.choice((b"[", b'{"a":', b"[[{")) * rng.choice((10, 1_000, deepest))
    if form == 7:
        damaged = bytearray(text)
        for _ in range(rng.randint(1, 8)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        return bytes(damaged)
    if form == 8:
        return rng.choice(
            (b"", b"\xff\xfe\x00", b"9" * 5_000, b"1", b"[]", b"null", b"{}", b'"x"')
        )
    return rng.randbytes(rng.choice((1, 100, 10_000)))
