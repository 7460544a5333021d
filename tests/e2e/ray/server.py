"""``fairlead serve --engine ray`` on a real Ray."""

import contextlib
from pathlib import Path

from tests.e2e.support.cluster_server import ClusterServer

from fairlead.engines.keeper import lease_dir
from fairlead.private_clusters.ray import RayCluster


class RayServer(ClusterServer):
    """A server with the Ray engine."""

    def __init__(self, root: Path, ray: RayCluster, host: str = "127.0.0.1") -> None:
        super().__init__(root, host)
        self.ray = ray
        self.engine = f"ray:emulate,address={ray.options['address']},here={ray.options['here']}"
        self.nodes = self.data / "ray/nodes"
        """parent of the nodes' directories"""

    def without_shared_directory(self) -> "RayServer":
        """Give every node a local directory that the server does not read."""
        self.nodes = self.root / "local"
        self.engine += f",node-dir={self.nodes}/{{node}}"
        return self

    def leases(self) -> dict[str, list[str]]:
        """Return job → nodes on which it runs now, by the lease directories."""
        nodes_of = {}
        for path in (self.data / "leases").glob("*"):
            with contextlib.suppress(FileNotFoundError):
                order = lease_dir.read_order(path)
                nodes = sorted({node for node, _ in order.devices})
                parts = list(self.nodes.glob(f"**/leases/{path.name}/members.json"))
                running = len(parts) == len(nodes)
                if running and not (path / "exit.json").exists():
                    nodes_of[order.job] = nodes
        return nodes_of
