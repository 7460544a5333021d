"""Console blocks of the documentation: the commands that a page shows, in order.

An HTML comment before a block says how it is treated:

- ``<!-- not run: REASON -->``: its commands are only checked against the command line's options;
- ``<!-- starts the server -->``: its ``fairlead serve … &`` starts the page's server;
- ``<!-- needs: MODULE -->``: skipped where the module is not installed.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
_BLOCK = re.compile(
    r"(?:^<!-- (?P<note>[^\n]*?) -->\n)?^(?P<indent> *)```console\n(?P<body>.*?)^ *```",
    re.M | re.S,
)


@dataclass(frozen=True)
class Block:
    """One console block."""

    page: str
    line: int
    note: str
    commands: tuple[str, ...]

    @property
    def is_run(self) -> bool:
        """Whether a test runs the commands."""
        return not self.note.startswith("not run")

    @property
    def needs(self) -> str:
        """The module without which the block is skipped; empty: none."""
        return self.note.removeprefix("needs: ") if self.note.startswith("needs: ") else ""


def pages() -> list[str]:
    """Return every page with console blocks, relative to the repository."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(p.relative_to(ROOT)) for p in paths if "```console" in p.read_text("utf-8")]


def blocks(page: str) -> list[Block]:
    """Return the console blocks of a page, top to bottom."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, match.start()) + 1,
            match["note"] or "",
            tuple(_commands(match["body"])),
        )
        for match in _BLOCK.finditer(text)
    ]


def sections(page: str) -> list[list[Block]]:
    """Return the console blocks of each section of a page, top to bottom."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    starts = [number for number, line in enumerate(lines, 1) if line.startswith("## ")]
    all_blocks = blocks(page)
    return [
        [block for block in all_blocks if start <= block.line < end]
        for start, end in zip(starts, [*starts[1:], len(lines) + 1], strict=True)
    ]


def _commands(body: str) -> Iterator[str]:
    """Yield each command after a prompt, continuation lines joined, comments removed."""
    lines = iter(body.replace("\\\n", " ").splitlines())
    for line in lines:
        if line.lstrip().startswith("$ "):
            yield re.sub(r"\s{2,}#.*$|\s#\s.*$", "", line.lstrip()[2:]).strip()


def fairlead_calls(command: str) -> Iterator[list[str]]:
    """Yield the arguments of each ``fairlead`` call in a shell command."""
    for part in re.split(r"[;|&]", command):
        words = shlex.split(part)
        if words and words[0] in ("fairlead", ".venv/bin/fairlead"):
            yield words[1:]
