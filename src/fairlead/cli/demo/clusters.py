"""Clusters for the demo: this machine, or a private Slurm or Ray cluster of four nodes on it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.model.errors import FairleadError

if TYPE_CHECKING:
    from fairlead.model.cluster import Node

CLUSTER_ROUND_S = 10.0
"""length of a round on Slurm and Ray, which take seconds to start a lease"""
_DEBIAN = (
    "apt-get install --no-install-recommends slurmctld slurmd slurm-client munge"
    " slurm-wlm-basic-plugins"
)


class DemoEngine(StrEnum):
    """Engine of the demo's server."""

    LOCAL = "local"
    SLURM = "slurm"
    RAY = "ray"


class UnavailableError(FairleadError):
    """The demo's cluster cannot be started on this machine."""

    code = "absent"


@dataclass(frozen=True, slots=True)
class DemoCluster:
    """A running cluster, with the server's options for it."""

    options: tuple[str, ...]
    about: str
    round_s: float = CLUSTER_ROUND_S
    environment: dict[str, str] = field(default_factory=dict)


@contextmanager
def demo_cluster(engine: DemoEngine, root: Path) -> Iterator[DemoCluster]:
    """Start a cluster for the demo; at the end stop it with everything that runs there."""
    if engine == DemoEngine.SLURM:
        yield from _slurm(root)
    elif engine == DemoEngine.RAY:
        yield from _ray()
    else:
        from fairlead.demo.scenario import DEVICES, ROUND_S

        yield DemoCluster(("--emulate", DEVICES), "this machine", ROUND_S)


def _nodes() -> "tuple[Node, ...]":
    """Return the demo's devices on four nodes; one simulation serves all engines."""
    from fairlead.model.cluster import Node

    return (
        Node("n1", ("v100", "v100"), "r1"),
        Node("n2", ("p100", "p100"), "r1"),
        Node("n3", ("k80", "k80"), "r2"),
        Node("n4", ("k80", "k80"), "r2"),
    )


def _slurm(root: Path) -> Iterator[DemoCluster]:
    from fairlead.private_clusters.slurm import SlurmCluster, missing

    problem = missing()
    if problem:
        fix = _DEBIAN if "not installed" in problem else "run the demo as root, or in a container"
        raise UnavailableError(f"{problem}; {fix}")
    cluster = SlurmCluster(root / "slurm-private", _nodes())
    try:
        cluster.start()
        options = ("--engine", "slurm:emulate,poll-s=1")
        about = "a private Slurm cluster of four nodes"
        yield DemoCluster(options, about, environment=cluster.environment)
    finally:
        cluster.stop()


def _ray() -> Iterator[DemoCluster]:
    try:
        from fairlead.private_clusters.ray import RayCluster, missing
    except ImportError as error:
        raise UnavailableError(
            f"Ray is not installed ({error}); pip install 'fairlead[ray]'"
        ) from None
    problem = missing()
    if problem:
        raise UnavailableError(f"{problem}; pip install 'fairlead[ray]'")
    cluster = RayCluster(_nodes())
    try:
        cluster.start()
        options = ",".join(f"{name}={value}" for name, value in cluster.options.items())
        about = "a private Ray cluster of four nodes"
        yield DemoCluster(("--engine", f"ray:emulate,{options}"), about)
    finally:
        cluster.stop()
