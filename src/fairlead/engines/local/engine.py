"""The local engine: runs gangs on this machine's devices, real or emulated."""

from dataclasses import replace
from pathlib import Path

from fairlead.engines.base import LaunchOrder
from fairlead.engines.keeper.supervisor import KeeperSupervisor
from fairlead.model.cluster import Cluster


class LocalEngine(KeeperSupervisor):
    """Runs leases on this machine."""

    def __init__(self, data: Path, cluster: Cluster, visible: tuple[str, ...] = ()) -> None:
        """Run on this machine; ``visible`` names its devices for CUDA_VISIBLE_DEVICES."""
        super().__init__(data)
        self._cluster = cluster
        self._visible = visible

    async def inventory(self) -> Cluster:
        """Return the cluster that consists of this machine."""
        return self._cluster

    async def launch(self, order: LaunchOrder) -> None:
        """Start the keeper of a lease, once."""
        if self._visible:
            names = tuple(self._visible[number] for _, number in order.devices)
            order = replace(order, visible=names)
        await super().launch(order)
