"""``fairlead serve --engine slurm`` on a real Slurm."""

import contextlib
from pathlib import Path
from typing import Any

from tests.e2e.support.cluster_server import ClusterServer, note

from fairlead.engines.slurm.engine import SlurmEngine
from fairlead.private_clusters.slurm import ClusterError, SlurmCluster
from fairlead.testing.engines.harness import EngineFixture

__all__ = ["SlurmServer", "note", "rig"]


def rig(slurm: SlurmCluster, root: Path, **options: Any) -> EngineFixture:
    """Return the fixture of an engine on this Slurm, for tests without a server."""
    return EngineFixture(
        make=lambda: SlurmEngine(root / "data", **options),
        root=root,
        cluster=slurm.cluster,
        patience_s=120.0,
    )


class SlurmServer(ClusterServer):
    """A server with the Slurm engine."""

    engine = "slurm:emulate,poll-s=1"

    def __init__(self, root: Path, slurm: SlurmCluster, host: str = "127.0.0.1") -> None:
        super().__init__(root, host)
        self.slurm = slurm

    def bring_back(self, node: str) -> None:
        """Restart a killed node; mark it down first, so that Slurm clears its jobs at once."""
        self.slurm.start_node(node)
        update = ("scontrol", "update", f"nodename={node}", "reason=test")
        self.slurm.run(*update, "state=down")
        with contextlib.suppress(ClusterError):  # it may be back already
            self.slurm.run(*update, "state=resume")
        states = ("sinfo", "--noheader", f"--nodes={node}", "--format=%T")
        self.until(lambda: "idle" in self.slurm.run(*states), f"{node} to be back")

    def running(self, program: str) -> list[int]:
        """Return the processes that run a program in this server's directory."""
        path = str(self.root / program).encode()
        pids = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if path in (entry / "cmdline").read_bytes().split(b"\0"):
                    pids.append(int(entry.name))
        return pids
