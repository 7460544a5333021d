"""Failpoints: each is named once, one file kills one process, and none costs time."""

import os
import re
import subprocess
import sys
from pathlib import Path

import fairlead
from fairlead import failpoints

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


def test_a_file_with_a_process_id_kills_that_process(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "300"]) as other:
        (tmp_path / "job.restored").write_text(str(other.pid))
        assert _run(_PASS, **{failpoints.VARIABLE: str(tmp_path)}).returncode == 0
        assert other.wait(60) == -9
    assert list(tmp_path.iterdir()) == []


def test_without_the_variable_no_process_dies(tmp_path: Path) -> None:
    (tmp_path / "job.restored").touch()
    assert _run(_PASS).returncode == 0


def test_the_job_library_loads_only_the_standard_library_and_fast() -> None:
    took_s: dict[str, list[float]] = {"fairlead.job": [], "asyncio": []}
    for module in [*took_s] * 4:
        code = (
            "import sys, time; before = set(sys.modules); began = time.process_time();"
            f"import {module}; took = time.process_time() - began;"
            "new = {name.partition('.')[0] for name in set(sys.modules) - before};"
            "print(took, *sorted(new - set(sys.stdlib_module_names)))"
        )
        took, *names = _run(code).stdout.split()
        assert names == (["fairlead"] if module == "fairlead.job" else [])
        took_s[module].append(float(took))
    # Beside other processes both take longer: a part of 0.4 on a quiet machine and on a busy one.
    assert min(took_s["fairlead.job"]) < 0.6 * min(took_s["asyncio"])
