"""Errors of commands: one line on stderr and an exit code."""

import os
import re
import sys
from typing import Any

import typer

from fairlead.model.errors import FairleadError, UsageError

UsageErrors: type[Exception] = typer.BadParameter.__bases__[0]
"""base class of Typer's usage errors, which Typer does not export"""


def run(app: typer.Typer) -> int:
    """Run the command line and return its exit code; print an error as one line on stderr."""
    try:
        code = app(prog_name="fairlead", standalone_mode=False)
        sys.stdout.flush()
    except FairleadError as error:
        _print_error(f"{error} [{error.code}]")
        return 2 if error.code == UsageError.code else 1
    except UsageErrors as error:
        return _usage_message(error)
    except typer.Abort:
        _print_error("aborted: no answer given [usage]")
        return 2
    except BrokenPipeError:
        # The reader of the output has exited.
        _discard_output()
        return 1
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        fix = "check the path, its permissions and the disk"
        _print_error(f"{place}{error.strerror or error}; {fix} [system]")
        _discard_output()
        return 1
    except Exception as error:  # a bug: name the file with the traceback
        _print_error(f"{_error_summary(error)}; this is a bug: please report it [internal]")
        return 1
    if code == 130:
        _print_error("interrupted")
    return code if isinstance(code, int) else 0


def _print_error(text: str) -> None:
    from fairlead.cli.shared.output import messages, printable

    messages.print(f"fairlead: {printable(text)}", style="red", highlight=False, soft_wrap=True)


_REWORDED = (
    (r"Invalid value for '(.*?)': ", r"\1: "),
    (r"Value error, '(.*?)' is not one of (.*)", r"unknown value '\1': expected one of \2"),
    (r"Input should be greater than or equal to (\S+)", r"out of range: expected \1 or more"),
    (r"Input should be less than or equal to (\S+)", r"out of range: expected at most \1"),
    (r"Input should be a valid integer.*", "not a whole number: expected one such as 4"),
    (r"Input should be a valid number.*", "not a number: expected one such as 2.5"),
    (r"Input should be a finite number.*", "not finite: expected a number such as 2.5"),
)
"""patterns of Typer's messages → the form of all other messages: field, problem, fix"""


def _reworded(message: str, error: Any) -> str:
    for pattern, replacement in _REWORDED:
        message = re.sub(pattern, replacement, message)
    # Typer names the one bound that a value exceeds; NaN is outside of both.
    parameter = getattr(error, "param", None)
    least, most = (getattr(parameter, name, None) for name in ("min", "max"))
    if least is not None and most is not None:
        in_range = f"out of range: expected {least:g} to {most:g}"
        message = re.sub(r"out of range: expected (at most \S+|\S+ or more)", in_range, message)
    return message


_GANG_ELSEWHERE = ("--gpus", "--num-gpus", "--gpus-per-node", "--gres", "--devices")
"""options of other schedulers and launchers in place of ``--gang``"""


def _asks_for_gang(error: Any) -> bool:
    """Return whether an unknown option of a command stands for its option ``--gang``."""
    if getattr(error, "option_name", None) not in _GANG_ELSEWHERE or error.ctx is None:
        return False
    return any("--gang" in parameter.opts for parameter in error.ctx.command.params)


def _usage_message(error: Any) -> int:
    message = _reworded(" ".join(error.format_message().split()), error)
    if _asks_for_gang(error):
        message = f"{error.message}: did you mean --gang, the number of devices?"
    if type(error).__name__ == "NoArgsIsHelpError":
        if message:  # otherwise Typer has printed the help
            error.show()
    elif error.ctx is None or message.endswith("?"):
        _print_error(f"{message} [usage]")
    else:
        _print_error(f"{message.rstrip('.')}; see {error.ctx.command_path} --help [usage]")
    return int(error.exit_code)


def _error_summary(error: Exception) -> str:
    import tempfile
    import traceback

    handle, path = tempfile.mkstemp(prefix="fairlead-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        traceback.print_exception(error, file=file)
    return f"{type(error).__name__}: {error} (traceback: {path})"


def _discard_output() -> None:
    """Redirect stdout to /dev/null, so that the interpreter's last flush does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
