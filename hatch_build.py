"""Builds the compiled form of what every round does, where there is a C compiler.

Without one, or without Python's headers, Fairlead is installed all the same and does the same,
more slowly.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags

_SOURCE = "src/fairlead/_compiled.c"
_MADE = "src/fairlead/_compiled.abi3.so"
_EXACT = ["-O2", "-fPIC", "-ffp-contract=off"]
"""no operation is fused with another, so that results are those of Python to the last bit"""


class CompileRounds(BuildHookInterface):
    """Compiles one file before a wheel is put together, or an editable one installed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; a wheel with the result fits this kind of machine only."""
        del version
        if self.target_name != "wheel":
            return
        made = Path(self.root, _MADE)
        made.unlink(missing_ok=True)
        failed = compile_to(Path(self.root, _SOURCE), made)
        if failed:
            self.app.display_warning(f"Rounds are not compiled, only slower for it: {failed}")
            return
        build_data["artifacts"].append(_MADE)
        build_data["pure_python"] = False
        if sys.implementation.name != "cpython":
            build_data["infer_tag"] = True
            return
        # Python's stable interface: one wheel fits all versions from 3.11 on.
        platforms = (tag.platform for tag in sys_tags())
        own = next(name for name in platforms if not name.startswith(("manylinux", "musllinux")))
        build_data["tag"] = f"cp311-abi3-{own}"


def compile_to(source: Path, made: Path) -> str:
    """Compile; return what went wrong, empty if nothing did."""
    usual, *link = shlex.split(sysconfig.get_config_var("LDSHARED") or "cc -shared")
    given = shlex.split(os.environ.get("CC", ""))
    compiler = given or [name for name in (usual, "cc") if shutil.which(name)][:1]
    if not compiler:
        return "there is no C compiler"
    headers = sysconfig.get_path("include")
    if not Path(headers, "Python.h").exists():
        return "Python's headers are not installed (Debian: python3-dev)"
    part = made.with_name(f"{made.name}.{os.getpid()}")
    command = [*compiler, *link, *_EXACT, f"-I{headers}", str(source), "-o", str(part), "-lm"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"{shlex.join(command)}\n{done.stderr}"
        part.replace(made)
    except OSError as error:
        return str(error)
    finally:
        part.unlink(missing_ok=True)
    return ""
