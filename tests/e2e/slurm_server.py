"""``fairlead serve --engine slurm`` on a real Slurm."""

from pathlib import Path

from tests.e2e.cluster_server import ClusterServer, note

from fairlead.testing.slurm_cluster import SlurmCluster

__all__ = ["SlurmServer", "note"]


class SlurmServer(ClusterServer):
    """A server in a directory of its own."""

    engine = "slurm:emulate,poll-s=1"

    def __init__(self, root: Path, slurm: SlurmCluster, host: str = "127.0.0.1") -> None:
        super().__init__(root, host)
        self.slurm = slurm
