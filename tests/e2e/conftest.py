"""Servers on emulated devices, a private Slurm and a private Ray, not yet started."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.ray.server import RayServer
from tests.e2e.slurm.server import SlurmServer
from tests.e2e.support.live_server import LiveServer

from fairlead.private_clusters.ray import RayCluster
from fairlead.private_clusters.slurm import SlurmCluster


@pytest.fixture
def slurm_server(slurm: SlurmCluster, tmp_path: Path) -> Iterator[SlurmServer]:
    """A server for it, not yet started."""
    made = SlurmServer(tmp_path, slurm)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def ray_server(ray: RayCluster, tmp_path: Path) -> Iterator[RayServer]:
    """A server for the private Ray, not yet started."""
    made = RayServer(tmp_path, ray)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[LiveServer]:
    """A server on emulated devices, not yet started."""
    made = LiveServer(tmp_path, round_s=30.0)
    yield made
    made.clean_up()
