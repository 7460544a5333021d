"""How property tests run everywhere, and one private Ray for all tests of a process.

Slow machines are no failure; CI tries the same examples.
"""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from fairlead.testing.ray_cluster import RayCluster, missing

settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """Return a private Ray; tests that use it are marked ``xdist_group("ray")`` to share it."""
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
