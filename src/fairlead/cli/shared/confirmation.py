"""Questions before changes that affect much."""

import sys

import typer

from fairlead.model.errors import UsageError


def confirm(question: str, *, yes: bool) -> None:
    """Ask on a terminal, unless ``yes``; elsewhere raise UsageError, since nobody can answer."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} nobody can answer here: expected --yes")
    typer.confirm(question, abort=True)
