"""Commands whose modules load when asked for, so that each command starts without the others'."""

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import typer
from typer.main import get_command


@dataclass(frozen=True)
class Command:
    """A command, or a group of commands, before its module is loaded."""

    panel: str
    """heading above it in the help"""
    function: str
    """``module:name`` within ``fairlead.cli``, of a function or of a Typer application"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """of its context"""

    def load(self, name: str) -> Any:
        """Return the command, which Typer builds from the signatures of its functions."""
        module, attribute = self.function.split(":")
        function = getattr(import_module(f"fairlead.cli.{module}"), attribute)
        host = typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False)
        host.callback()(_no_options)
        if isinstance(function, typer.Typer):
            host.add_typer(function, name=name, rich_help_panel=self.panel)
        else:
            context_settings = dict(self.settings)
            host.command(name, context_settings=context_settings, rich_help_panel=self.panel)(
                function
            )
        group: Any = get_command(host)
        return group.commands[name]


def _no_options() -> None:
    """Make Typer build a group for one command too."""


class LazyCommands(MutableMapping[str, Any]):
    """Commands by name, in the order of the help; each is loaded when it is first read."""

    def __init__(self, declared: Mapping[str, Command]) -> None:
        self._commands: dict[str, Any] = dict(declared)

    def __getitem__(self, name: str) -> Any:
        command = self._commands[name]
        if isinstance(command, Command):
            command = self._commands[name] = command.load(name)
        return command

    def __setitem__(self, name: str, command: Any) -> None:
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands)

    def __len__(self) -> int:
        return len(self._commands)
