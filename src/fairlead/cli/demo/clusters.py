"""Where the demo's jobs run: this machine, or a private Slurm or Ray of four nodes on it."""

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
"""a cluster takes seconds to start a lease"""
_DEBIAN = (
    "apt-get install --no-install-recommends slurmctld slurmd slurm-client munge"
    " slurm-wlm-basic-plugins"
)


class DemoEngine(StrEnum):
    """What starts the demo's processes."""

    LOCAL = "local"
    SLURM = "slurm"
    RAY = "ray"


class UnavailableError(FairleadError):
    """What the demo was to run on cannot be started here."""

    code = "absent"


@dataclass(frozen=True, slots=True)
class Site:
    """What the server must be told to run there."""

    options: tuple[str, ...]
    about: str
    round_s: float = CLUSTER_ROUND_S
    environment: dict[str, str] = field(default_factory=dict)


@contextmanager
def site(engine: DemoEngine, root: Path) -> Iterator[Site]:
    """Start a cluster for the demo, and end it with everything that runs there."""
    if engine == DemoEngine.SLURM:
        yield from _slurm(root)
    elif engine == DemoEngine.RAY:
        yield from _ray()
    else:
        from fairlead.demo.scenario import DEVICES, ROUND_S

        yield Site(("--emulate", DEVICES), "this machine", ROUND_S)


def _nodes() -> "tuple[Node, ...]":
    """Return the scene's devices on four nodes: one simulation stands for all engines."""
    from fairlead.model.cluster import Node

    return (
        Node("n1", ("v100", "v100"), "r1"),
        Node("n2", ("p100", "p100"), "r1"),
        Node("n3", ("k80", "k80"), "r2"),
        Node("n4", ("k80", "k80"), "r2"),
    )


def _slurm(root: Path) -> Iterator[Site]:
    from fairlead.private_clusters.slurm import SlurmCluster, missing

    problem = missing()
    if problem:
        fix = _DEBIAN if "not installed" in problem else "run it as root, in a container perhaps"
        raise UnavailableError(f"{problem}; {fix}")
    cluster = SlurmCluster(root / "slurm-private", _nodes())
    try:
        cluster.start()
        options = ("--engine", "slurm:emulate,poll-s=1")
        about = "a private Slurm of four nodes"
        yield Site(options, about, environment=cluster.environment)
    finally:
        cluster.stop()


def _ray() -> Iterator[Site]:
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
        given = ",".join(f"{name}={value}" for name, value in cluster.options.items())
        yield Site(("--engine", f"ray:emulate,{given}"), "a private Ray of four nodes")
    finally:
        cluster.stop()
