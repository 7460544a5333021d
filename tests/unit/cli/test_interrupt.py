"""Ctrl-C at any moment of a command's start."""

import subprocess
import sys

import pytest

INTERRUPTED_IMPORT = """
import signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
sys.argv = ["fairlead", "policies"]
from fairlead.__main__ import main
main()
"""


@pytest.mark.parametrize("module", ["fairlead.cli.main", "typer", "fairlead.registry"])
def test_ctrl_c_while_modules_load_is_one_line_and_exit_code_130(module: str) -> None:
    code = INTERRUPTED_IMPORT.format(module=module)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "fairlead: interrupted\n"


def test_the_first_import_of_a_command_is_small() -> None:
    # Python itself reports Ctrl-C with a traceback until this import has ended.
    code = "import sys; before = {*sys.modules}; import fairlead.__main__;"
    code += "print(len({*sys.modules} - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 8
