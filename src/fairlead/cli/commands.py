"""The group of all commands: flags show no type, and plain values need no pydantic."""

from typing import Any

from typer.core import TyperGroup

from fairlead.cli.plain_values import convert_plain_values


# Typer does not export the classes of contexts, commands and options: they are Any here.
class Commands(TyperGroup):
    """The commands of ``fairlead``; their flags show no type in the help: they take no value."""

    def get_params(self, ctx: Any) -> Any:
        """Return the options of ``fairlead`` itself."""
        return _adapted(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command with its subcommands; None if there is none of this name."""
        command = super().get_command(ctx, cmd_name)
        _adapt(command, ctx)
        return command


def _adapt(command: Any, context: Any) -> None:
    if command is not None:
        _adapted(command.get_params(context))
        for subcommand in getattr(command, "commands", {}).values():
            _adapt(subcommand, context)


def _adapted(parameters: Any) -> Any:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
        convert_plain_values(parameter)
    return parameters
