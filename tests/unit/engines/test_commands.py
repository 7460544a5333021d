"""Check of a job's program at its submission."""

from pathlib import Path

import pytest

from fairlead.engines.local.commands import require_program
from fairlead.model.errors import InputError


def test_program_must_be_in_the_path_of_the_job(tmp_path: Path) -> None:
    require_program("sh", "/", {})
    with pytest.raises(InputError, match=r"command: no program 'no-such-tool' in the job's PATH"):
        require_program("no-such-tool", "/", {})
    tool = tmp_path / "no-such-tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    require_program("no-such-tool", "/", {"PATH": str(tmp_path)})
    with pytest.raises(InputError, match="no program 'sh'"):
        require_program("sh", "/", {"PATH": str(tmp_path)})


def test_path_is_relative_to_the_directory_of_the_job(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    with pytest.raises(InputError, match=f"no such file: {script}"):
        require_program("./train.sh", str(tmp_path), {})
    script.write_text("#!/bin/sh\n")
    with pytest.raises(InputError, match=r"train.sh cannot be executed: .*chmod"):
        require_program("./train.sh", str(tmp_path), {})
    script.chmod(0o755)
    require_program("./train.sh", str(tmp_path), {})


def test_a_directory_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    require_program("sh", "", {})
    with pytest.raises(InputError, match=r"directory: no such directory: .*/gone: expected"):
        require_program("sh", str(tmp_path / "gone"), {})
    with pytest.raises(InputError, match="no such directory"):
        require_program("sh", "/" + 300 * "x", {})
    with pytest.raises(InputError, match="no such file"):
        require_program(300 * "x" + "/y", "", {})
