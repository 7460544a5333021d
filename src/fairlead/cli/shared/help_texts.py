"""Help texts: flags show no type, since they take no value."""

from typing import Any

from typer.core import TyperGroup


# Typer does not export the classes of contexts, commands and options: they are Any here.
class Commands(TyperGroup):
    """The commands of ``fairlead``, whose flags show no type in their help."""

    def get_params(self, ctx: Any) -> Any:
        """Return the options of ``fairlead`` itself."""
        return _without_types_of_flags(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command with its subcommands; None if there is none of this name."""
        command = super().get_command(ctx, cmd_name)
        _hide_types_of_flags(command, ctx)
        return command


def _hide_types_of_flags(command: Any, context: Any) -> None:
    if command is not None:
        _without_types_of_flags(command.get_params(context))
        for subcommand in getattr(command, "commands", {}).values():
            _hide_types_of_flags(subcommand, context)


def _without_types_of_flags(options: Any) -> Any:
    for option in options:
        if getattr(option, "is_flag", False):
            option.metavar = ""
    return options
