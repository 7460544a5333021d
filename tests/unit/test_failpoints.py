"""Failpoints: each is named once, one file kills one process, and none costs time."""

import os
import re
import subprocess
import sys
from pathlib import Path

import fairlead
from fairlead import failpoints
from fairlead.testing.cpu_time import machine_slowness

_PASS = """
from fairlead.failpoints import point
point('job.leaves')
point('job.restored')
"""


def _run(code: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    clean = {k: v for k, v in os.environ.items() if k != failpoints.VARIABLE}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_code_has_exactly_the_named_points() -> None:
    home = Path(fairlead.__file__).parent
    text = "\n".join(path.read_text(encoding="utf-8") for path in home.rglob("*.py"))
    names = re.findall(r"failpoints\.point\(\"([a-z.]+)\"\)", text)
    assert sorted(names) == sorted(failpoints.POINTS)


def test_a_file_kills_only_the_first_process_at_its_point(tmp_path: Path) -> None:
    (tmp_path / "job.restored").touch()
    variables = {failpoints.VARIABLE: str(tmp_path)}
    assert [_run(_PASS, **variables).returncode for _ in range(2)] == [-9, 0]
    assert list(tmp_path.iterdir()) == []


def test_without_the_variable_no_process_dies(tmp_path: Path) -> None:
    (tmp_path / "job.restored").touch()
    assert _run(_PASS).returncode == 0


def test_the_job_library_loads_only_the_standard_library_and_fast() -> None:
    code = (
        "import sys, time; before = set(sys.modules); began = time.process_time();"
        "import fairlead.job; took = time.process_time() - began;"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(took, *sorted(new - set(sys.stdlib_module_names)))"
    )
    outputs = [_run(code).stdout.split() for _ in range(3)]
    assert {tuple(names) for _, *names in outputs} == {("fairlead",)}
    assert min(float(took) for took, *_ in outputs) < 0.03 * machine_slowness()
