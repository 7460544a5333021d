"""Check that a job's command names a program of this machine."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from fairlead.model.errors import InputError


def require_program(program: str, directory: str, environment: Mapping[str, str]) -> None:
    """Raise InputError unless a job in this directory can start the program."""
    if "\0" in program + directory:
        return  # rejected with the job's other texts
    if not Path(directory or ".").is_dir():
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
    if not file.is_file():
        raise InputError(f"no such file: {file}", fix="expected a program", field="command")
    if not os.access(file, os.X_OK):
        raise InputError(
            f"{file} cannot be executed", fix="expected a program: chmod +x", field="command"
        )
