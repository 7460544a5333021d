"""Settings of property tests, and one private Ray for all tests of a process.

Slow machines are no failure; CI tries the same examples, and tests of real processes are tried a
second time when they fail, with what went wrong the first time shown.
"""

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from fairlead.private_clusters.ray import RayCluster, missing

_NAMES_RAY = re.compile("(?<![a-z])rays?(?![a-z])")

settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """Return a private Ray; tests that name it share it, see ``FewServers``."""
    if missing():
        pytest.skip(missing())
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


class FewServers(LoadScopeScheduling):  # type: ignore[misc]  # xdist's classes have no types here
    """Tests go to whichever worker is free, except tests that share a cluster or a server.

    All tests that name Ray go to one worker: a private Ray is dear to start, and two at a time
    slow each other down. So do all tests of an attacked or end-to-end server that a file shares.
    """

    def _split_scope(self, nodeid: str) -> str:
        if _NAMES_RAY.search(nodeid):
            return "ray"
        path = nodeid.partition("::")[0]
        return path if _shares_server(path) else nodeid


@cache
def _shares_server(path: str) -> bool:
    text = (Path(__file__).parents[1] / path).read_text(encoding="utf-8")
    return path.startswith(("tests/attacks/", "tests/e2e/")) and 'scope="module"' in text


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/e2e/" in item.nodeid or "test_engines" in item.nodeid:
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FewServers:
    return FewServers(config, log)
