"""The demo runs on every engine and ends with the same tables."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.cli.demo.clusters import DemoEngine, UnavailableError, demo_cluster
from fairlead.private_clusters import ray as ray_cluster
from fairlead.private_clusters import slurm as slurm_cluster

ABSENT = {"local": lambda: "", "slurm": slurm_cluster.missing, "ray": ray_cluster.missing}


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def demo(engine: str, *, jobs: int) -> subprocess.CompletedProcess[str]:
    # Below the range of ephemeral ports, which other processes may get while a cluster starts.
    port = str(next(port for port in range(20_000 + os.getpid() % 9000, 32_000) if is_free(port)))
    command = [sys.executable, "-m", "fairlead", "demo", "--port", port, "--jobs", str(jobs)]
    return subprocess.run(
        [*command, "--engine", engine],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("engine", sorted(ABSENT))
def test_demo_finishes_all_its_jobs_on(engine: str) -> None:
    if ABSENT[engine]():
        pytest.skip(ABSENT[engine]())
    done = demo(engine, jobs=3)
    assert done.returncode == 0, done.stderr
    assert re.search(r"finished with exactly their steps\W+3 of 3", done.stdout)
    assert "live, max-min" in done.stdout
    assert "Average overhead of a lease" in done.stdout
    assert "Next steps" in done.stderr


@pytest.mark.parametrize(
    ("engine", "cluster", "problem", "fix"),
    [
        (DemoEngine.SLURM, slurm_cluster, "Slurm is not installed: there is no x", "apt-get"),
        (DemoEngine.SLURM, slurm_cluster, "a private Slurm needs root", "as root"),
        (DemoEngine.RAY, ray_cluster, "Ray is not installed", "pip install"),
    ],
)
def test_a_missing_program_is_named_with_its_fix(
    engine: DemoEngine,
    cluster: object,
    problem: str,
    fix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "missing", lambda: problem)
    with pytest.raises(UnavailableError, match=fix) as raised, demo_cluster(engine, tmp_path):
        pass
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)
