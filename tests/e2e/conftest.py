"""One private Slurm, and servers on it and on a private Ray, for tests that want one."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.ray.server import RayServer
from tests.e2e.slurm.server import SlurmServer
from tests.e2e.support.live_server import LiveServer

from fairlead.private_clusters.ray import RayCluster
from fairlead.private_clusters.slurm import SlurmCluster, missing


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[SlurmCluster]:
    if missing():
        pytest.skip(missing())
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
    with contextlib.suppress(Exception):
        slurm_cluster.run("scancel", "--user=root")
    slurm_cluster.wait_idle()


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
