"""What went wrong, in one line on stderr, and the exit code that goes with it."""

import os
import sys
import tempfile
import traceback
from typing import Any

import typer

from fairlead.model.errors import FairleadError, UsageError

UsageErrors: type[Exception] = typer.BadParameter.__bases__[0]
"""what typer raises for arguments it cannot use; typer itself gives it no name"""


def run(app: typer.Typer) -> int:
    """Run the command line and return its exit code; every refusal is one line on stderr."""
    try:
        code = app(prog_name="fairlead", standalone_mode=False)
        sys.stdout.flush()
    except FairleadError as error:
        _say(f"{error} [{error.code}]")
        return 2 if error.code == UsageError.code else 1
    except UsageErrors as error:
        return _usage_message(error)
    except typer.Abort:
        _say("nothing was answered, so nothing was done [usage]")
        return 2
    except BrokenPipeError:
        # Whoever read our output has gone; there is nobody left to tell.
        _discard_output()
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        fix = "check the path, its permissions and the disk"
        _say(f"{where}{error.strerror or error}; {fix} [system]")
        _discard_output()
        return 1
    except Exception as error:  # a fault of ours: say where the whole of it is
        _say(f"{_error_summary(error)}; this is a fault in Fairlead: please report it [internal]")
        return 1
    if code == 130:
        _say("interrupted")
    return code if isinstance(code, int) else 0


def _say(text: str) -> None:
    from fairlead.cli.shared.output import messages, printable

    messages.print(f"fairlead: {printable(text)}", style="red", highlight=False, soft_wrap=True)


def _usage_message(error: Any) -> int:
    told = " ".join(error.format_message().split())
    if type(error).__name__ == "NoArgsIsHelpError":
        if told:  # otherwise the help is on stdout already
            error.show()
    elif error.ctx is None or told.endswith("?"):
        _say(f"{told} [usage]")
    else:
        _say(f"{told.rstrip('.')}; see {error.ctx.command_path} --help [usage]")
    return int(error.exit_code)


def _error_summary(error: Exception) -> str:
    handle, path = tempfile.mkstemp(prefix="fairlead-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        traceback.print_exception(error, file=file)
    return f"{type(error).__name__}: {error} (all of it is in {path})"


def _discard_output() -> None:
    """Have the interpreter drop what it could not write, and not complain of it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
