"""Check that a job's command names a program of this machine."""

import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from fairlead.model.errors import InputError


def require_program(program: str, directory: str, environment: Mapping[str, str]) -> None:
    """Raise InputError unless a job in this directory can start the program."""
    if "\0" in program + directory:
        return  # rejected with the job's other texts
    if not _is_directory(directory or "."):
        fix = "expected a directory of the server's machine"
        raise InputError(f"no such directory: {directory}", fix=fix, field="directory")
    if "/" not in program:
        path = environment.get("PATH") or os.environ.get("PATH")
        if shutil.which(program, path=path) is None:
            raise InputError(
                f"no program {program!r} in the job's PATH",
                fix="expected a program of the server's machine, or a path such as ./train.sh",
                field="command",
            )
        return
    file = Path(directory or ".") / program
    if not os.path.isfile(file):  # also if its name is too long
        raise InputError(f"no such file: {file}", fix="expected a program", field="command")
    if not os.access(file, os.X_OK):
        raise InputError(
            f"{file} cannot be executed", fix="expected a program: chmod +x", field="command"
        )


def _is_directory(path: str) -> bool:
    """Return whether there is such a directory; also if only the job's user may see it."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except PermissionError:
        return True
    except OSError:
        return False
