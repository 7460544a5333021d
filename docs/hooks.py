"""Fills the command-line page from the commands themselves, so that it cannot go stale."""

from typing import Any

from typer.main import get_command

from fairlead.cli.main import app

MARK = "<!-- commands -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the mark by a section for every command."""
    if MARK not in markdown:
        return markdown
    root: Any = get_command(app)
    sections = [_section(name, command) for name, command in _walk("fairlead", root)]
    return markdown.replace(MARK, "\n\n".join(sections))


def _walk(name: str, command: Any) -> list[tuple[str, Any]]:
    if hasattr(command, "commands"):
        inner = (_walk(f"{name} {key}", sub) for key, sub in command.commands.items())
        return [found for part in inner for found in part]
    return [(name, command)]


def _section(name: str, command: Any) -> str:
    lines = [f"## `{name}`", "", (command.help or "").replace("Example:  ", "Example: `").strip()]
    if "Example: `" in lines[-1]:
        lines[-1] += "`"
    lines += ["", "| option | what it does |", "|---|---|"]
    for option in command.params:
        if option.name == "help":
            continue
        names = ", ".join(f"`{flag}`" for flag in option.opts)
        about = (getattr(option, "help", None) or "").replace("|", "\\|")
        default = option.default
        if default not in (None, False, ()) and not callable(default):
            about += f" Default: `{default}`."
        lines.append(f"| {names} | {about} |")
    return "\n".join(lines)
