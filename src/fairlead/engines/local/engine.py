"""The local engine: runs gangs on this machine's devices, real or emulated."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from fairlead.engines.base import LaunchOrder
from fairlead.engines.keeper.confinement.tenant_user import allow_traversal, find_user
from fairlead.engines.keeper.supervisor import KeeperSupervisor
from fairlead.model.cluster import Cluster


class LocalEngine(KeeperSupervisor):
    """Runs leases on this machine."""

    def __init__(
        self,
        data: Path,
        cluster: Cluster,
        visible: tuple[str, ...] = (),
        *,
        users: bool = False,
        inherits: Collection[str] = (),
        processes_per_device: int | None = None,
    ) -> None:
        """Run on this machine; ``visible`` names its devices for CUDA_VISIBLE_DEVICES.

        With ``users`` a job runs as the Unix user with the name of its tenant, which needs root.
        """
        super().__init__(data, inherits)
        self._cluster = cluster
        self._visible = visible
        self._users = users
        self._processes_per_device = processes_per_device
        if users:
            allow_traversal(data)

    async def inventory(self) -> Cluster:
        """Return the cluster that consists of this machine."""
        return self._cluster

    def check_tenant(self, tenant: str) -> None:
        """Raise InputError if jobs of this tenant cannot run."""
        if self._users:
            find_user(tenant)

    async def launch(self, order: LaunchOrder) -> None:
        """Start the keeper of a lease, once."""
        if self._visible:
            names = tuple(self._visible[number] for _, number in order.devices)
            order = replace(order, visible=names)
        if self._processes_per_device is not None:
            order = replace(order, max_processes=self._processes_per_device * len(order.devices))
        await super().launch(replace(order, user=order.tenant if self._users else ""))
