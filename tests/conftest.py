"""Settings of property tests, one private Ray and Slurm for all tests, and the order of tests.

Slow machines are no failure; CI tries the same examples, and tests of real processes are tried a
second time when they fail, with what went wrong the first time shown.
"""

import gc
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests.support.plain_logs import use_plain_tracebacks
from xdist.scheduler import LoadScopeScheduling

from fairlead.private_clusters import ray as private_ray
from fairlead.private_clusters import slurm as private_slurm
from fairlead.private_clusters.ray import RayCluster
from fairlead.private_clusters.slurm import SlurmCluster

_ON_ONE_WORKER = {
    "ray": re.compile("(?<![a-z])rays?(?![a-z])"),
    "slurm": re.compile("slurm"),
    "postgresql": re.compile("postgresql"),
}
"""group → pattern in the names of its tests, which share a dear cluster or database"""
_WITH_PROCESSES = ("tests/attacks/", "tests/e2e/", "tests/conformance/test_engines")

settings.register_profile(
    "default",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

use_plain_tracebacks()
os.umask(0o022)  # other users read some of the files of tests
sys.dont_write_bytecode = False  # workers and later runs share pytest's rewritten modules


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """Return a private Ray; tests that name it share it, see ``FewServers``."""
    if private_ray.missing():
        pytest.skip(private_ray.missing())
    cluster = RayCluster()
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture
def ray(ray_cluster: RayCluster) -> Iterator[RayCluster]:
    """Four idle nodes; what a test leaves there is ended after it."""
    yield ray_cluster
    ray_cluster.clear()


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[SlurmCluster]:
    """Return a private Slurm; tests that name it share it, see ``FewServers``."""
    if private_slurm.missing():
        pytest.skip(private_slurm.missing())
    root = Path(tempfile.mkdtemp(prefix="fairlead-slurm-"))  # that other users can look into
    cluster = SlurmCluster(root / "slurm", patience_s=120.0)
    root.chmod(0o755)
    try:
        yield cluster.start()
    finally:
        cluster.stop()
        shutil.rmtree(root)


@pytest.fixture
def slurm(slurm_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """Four idle nodes; what a test leaves there is ended after it."""
    monkeypatch.setenv("SLURM_CONF", slurm_cluster.environment["SLURM_CONF"])
    yield slurm_cluster
    slurm_cluster.clear()


class FewServers(LoadScopeScheduling):
    """Tests go to whichever worker is free, except tests that share a cluster or a server.

    All tests that name Ray go to one worker: a private Ray is dear to start, and two at a time
    slow each other down. So do those that name Slurm or PostgreSQL, and all tests of an attacked
    or end-to-end server that a file shares.

    Tests of real processes mostly wait, so one worker computes while the others run them.
    """

    def _split_scope(self, nodeid: str) -> str:
        for group, pattern in _ON_ONE_WORKER.items():
            if pattern.search(nodeid):
                return group
        path = nodeid.partition("::")[0]
        return path if _shares_server(path) else nodeid

    def _assign_work_unit(self, node: Any) -> None:
        computes = node is self.nodes[0]
        chosen = (s for s, unit in self.workqueue.items() if computes != _runs_processes(unit))
        self.workqueue.move_to_end(next(chosen, next(iter(self.workqueue))), last=False)
        super()._assign_work_unit(node)


def _runs_processes(nodeids: Collection[str]) -> bool:
    return any(nodeid.startswith(_WITH_PROCESSES) for nodeid in nodeids)


@cache
def _shares_server(path: str) -> bool:
    file = Path(__file__).parents[1] / path
    sources = [each for each in (file, file.with_name("conftest.py")) if each.exists()]
    shared = any('scope="module"' in each.read_text(encoding="utf-8") for each in sources)
    return shared and path.startswith(("tests/attacks/", "tests/e2e/"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(_WITH_PROCESSES[1:]):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_configure() -> None:
    # A shell that runs the tests in the background ignores this signal, and so would commands.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()  # thousands of tests and their modules stay: no collection needs to look at them


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FewServers:
    return FewServers(config, log)
