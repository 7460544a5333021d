"""Control groups of leases."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from fairlead.engines.keeper.confinement import cgroup

NAME = f"test-{os.getpid()}"


@pytest.fixture
def group(tmp_path: Path) -> cgroup.Cgroup:
    made = cgroup.create(tmp_path, NAME)
    if made is None:
        pytest.skip("no control groups that this user can make")
    return made


def test_all_processes_of_a_group_are_killed(tmp_path: Path, group: cgroup.Cgroup) -> None:
    code = "sleep 600 & setsid env -i sleep 600 & echo; wait"
    with subprocess.Popen(
        ["sh", "-c", code],
        stdout=subprocess.PIPE,
        preexec_fn=group.join,  # noqa: PLW1509  # no threads here
    ) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        loaded = cgroup.load(tmp_path)
        assert loaded == group
        assert shell.pid in loaded.processes()
        while loaded.processes():
            loaded.kill()
            shell.poll()
        assert shell.wait(60.0) == -9
    group.remove()
    assert cgroup.load(tmp_path) is None


@pytest.mark.parametrize(
    "names", [["/etc"], ["/sys/fs/cgroup/../fairlead/x"], ["/tmp/fairlead/x"], {}, [1], "x"]
)
def test_a_damaged_record_names_no_group(tmp_path: Path, names: object) -> None:
    (tmp_path / "cgroup.json").write_text(json.dumps(names))
    assert cgroup.load(tmp_path) is None


def test_the_checkup_leaves_no_group() -> None:
    controllers = cgroup.controllers()
    assert controllers is None or controllers <= {"memory", "pids"}
    # Other tests remove their groups meanwhile, which os.walk tolerates.
    groups = (Path(path).name for path, _, _ in os.walk("/sys/fs/cgroup"))
    assert f"check-{os.getpid()}" not in groups
