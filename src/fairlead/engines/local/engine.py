"""The local engine: runs gangs on this machine's devices, real or emulated."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fairlead.engines.base import DevicesTakenReport, LaunchOrder
from fairlead.engines.keeper.confinement.tenant_user import allow_traversal, find_user
from fairlead.engines.keeper.hand_over.supervisor import HandOverSupervisor
from fairlead.engines.local.commands import require_program
from fairlead.engines.local.devices import LocalDevices
from fairlead.engines.local.gpus.monitor import GpuMonitor
from fairlead.model.cluster import Cluster


class LocalEngine(HandOverSupervisor):
    """Runs leases on this machine."""

    shares_checkpoints = True

    def __init__(
        self,
        data: Path,
        cluster: Cluster,
        *,
        devices: LocalDevices | None = None,
        monitor: GpuMonitor | None = None,
        users: bool = False,
        inherits: Collection[str] = (),
        processes_per_device: int | None = None,
        offload_gib: float = 0.0,
    ) -> None:
        """Run on this machine, on ``devices`` where they are real or may change between starts.

        With ``users`` a job runs as the Unix user with the name of its tenant, which needs root.
        Preempted processes may stay in ``offload_gib`` of host memory.
        """
        super().__init__(data, inherits, offload_gib=offload_gib)
        self._cluster = cluster
        self._devices, self._monitor = devices, monitor
        self._users = users
        self._processes_per_device = processes_per_device
        if users:
            allow_traversal(data)

    async def inventory(self) -> Cluster:
        """Return the cluster that consists of this machine."""
        return self._cluster

    async def adopt(self, leases: Collection[int]) -> None:
        """Follow the leases of an earlier server, and report missing devices."""
        if self._devices is not None:
            self._devices.save()
            for node, numbers in self._devices.missing.items():
                self._reports.put_nowait(DevicesTakenReport(node, numbers, gone=True))
        if self._monitor is not None:
            self._monitor.start(self._reports.put_nowait)
        await super().adopt(leases)

    async def close(self) -> None:
        """Stop following keepers and reading GPUs; jobs keep running."""
        if self._monitor is not None:
            self._monitor.stop()
        await super().close()

    def check_tenant(self, tenant: str) -> None:
        """Raise InputError if jobs of this tenant cannot run."""
        if self._users:
            find_user(tenant)

    def check_command(
        self, command: Sequence[str], directory: str, environment: Mapping[str, str]
    ) -> None:
        """Raise InputError if there is no such program on this machine."""
        require_program(command[0], directory, environment)

    async def launch(self, order: LaunchOrder) -> None:
        """Start the keeper of a lease, once."""
        await super().launch(self._complete(order))

    async def prepare(self, order: LaunchOrder) -> None:
        """Start the process of a job's next lease, unless there is one, or it cannot wait."""
        await super().prepare(self._complete(order))

    def _complete(self, order: LaunchOrder) -> LaunchOrder:
        """Return an order with the devices' names, the limit of processes and the user."""
        if self._devices is not None:
            names = [self._devices.visible(node, number) for node, number in order.devices]
            order = replace(order, visible=tuple(name for name in names if name))
        if self._processes_per_device is not None:
            order = replace(order, max_processes=self._processes_per_device * len(order.devices))
        return replace(order, user=order.tenant if self._users else "")
