"""The local engine: runs gangs on this machine's devices, real or emulated."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fairlead.engines.base import DevicesTakenReport, LaunchOrder, NodeDown, NodeJoined, NodeUp
from fairlead.engines.keeper.confinement.tenant_user import allow_traversal, find_user
from fairlead.engines.keeper.growth.supervisor import GrowthSupervisor
from fairlead.engines.local.commands import require_program
from fairlead.engines.local.devices import LocalDevices
from fairlead.engines.local.gpus import mig
from fairlead.engines.local.gpus.monitor import GpuMonitor
from fairlead.engines.local.mps import MpsDaemon
from fairlead.model.cluster import Cluster
from fairlead.model.errors import ProtocolError

_POLL_S = 0.01
_END_S = 10.0
"""seconds for which the end of stopped leases is waited for before MPS is left to them"""


class LocalEngine(GrowthSupervisor):
    """Runs leases on this machine."""

    shares_checkpoints = True

    def __init__(
        self,
        data: Path,
        cluster: Cluster,
        *,
        devices: LocalDevices | None = None,
        monitor: GpuMonitor | None = None,
        find_devices: Callable[[], tuple[LocalDevices, GpuMonitor | None]] | None = None,
        users: bool = False,
        inherits: Collection[str] = (),
        processes_per_device: int | None = None,
        offload_gib: float = 0.0,
        mps: MpsDaemon | None = None,
    ) -> None:
        """Run on this machine, on ``devices`` where they are real or may change between starts.

        ``find_devices`` lists real devices again, after a change of their MIG layout.
        With ``users`` a job runs as the Unix user with the name of its tenant, which needs root.
        Preempted processes may stay in ``offload_gib`` of host memory. Jobs use ``mps`` if given.
        """
        super().__init__(data, inherits, offload_gib=offload_gib)
        self._cluster = cluster
        self._devices, self._monitor = devices, monitor
        self._find_devices = find_devices
        self._absent: set[str] = set()
        """nodes that are reported down, since they have no device left"""
        self._users, self._mps = users, mps
        self._processes_per_device = processes_per_device
        self._stopped: set[int] = set()
        """leases with a request to end"""
        if users:
            allow_traversal(data)

    async def inventory(self) -> Cluster:
        """Return the cluster that consists of this machine."""
        return self._cluster

    async def adopt(self, leases: Collection[int]) -> None:
        """Follow the leases of an earlier server, and report missing devices."""
        if self._mps is not None:
            await asyncio.to_thread(self._mps.start)
        if self._devices is not None:
            self._devices.save()
            for node, numbers in self._devices.missing.items():
                self._reports.put_nowait(DevicesTakenReport(node, numbers, gone=True))
        if self._monitor is not None:
            self._monitor.start(self._reports.put_nowait)
        await super().adopt(leases)

    async def close(self) -> None:
        """Stop following keepers and reading GPUs; jobs keep running, and MPS with them.

        MPS stops if no job is left; those that are being stopped get some seconds to end.
        """
        if self._monitor is not None:
            self._monitor.stop()
        stopped = self._mps if self._mps is not None and await self._all_end() else None
        await super().close()  # ends the processes that wait for a lease
        if stopped is not None:
            await asyncio.to_thread(stopped.stop)

    async def stop(self, lease: int) -> None:
        """Signal the keeper to stop its process."""
        self._stopped.add(lease)
        await super().stop(lease)

    async def kill(self, lease: int) -> None:
        """Signal the keeper to kill its processes at once."""
        self._stopped.add(lease)
        await super().kill(lease)

    async def forget(self, leases: Collection[int]) -> None:
        """Remove the directories of leases that have ended, once no keeper needs them."""
        self._stopped.difference_update(leases)
        await super().forget(leases)

    async def _all_end(self) -> bool:
        """Return whether no lease is left; wait for those with a request to end."""
        until = time.monotonic() + _END_S
        while running := await self.running():
            if running - self._stopped or time.monotonic() > until:
                return False
            await asyncio.sleep(_POLL_S)
        return True

    async def check_layout(self, gpu: int, profiles: Sequence[str]) -> Collection[str]:
        """Return the nodes that have devices of a GPU; raise if it cannot be divided so."""
        if self._find_devices is None or self._devices is None:
            raise ProtocolError("emulated devices cannot be divided: expected a server on GPUs")
        mig.require_profiles(profiles)
        mig.require_root()
        listed = (await asyncio.to_thread(mig.list_by_index)).get(gpu, ())
        uuids = {one.uuid for one in listed}
        return {
            node
            for node, devices in self._devices.nodes.items()
            if any(one.present and one.uuid in uuids for one in devices)
        }

    async def set_layout(self, gpu: int, profiles: Sequence[str]) -> None:
        """Divide a GPU that no process uses, or make it whole; then report the devices."""
        if self._monitor is not None:
            await asyncio.to_thread(self._monitor.close)
        try:
            await asyncio.to_thread(mig.set_layout, gpu, profiles)
        finally:
            await self._report_devices()

    async def _report_devices(self) -> None:
        """List the devices again, and report nodes that have joined, returned or left."""
        assert self._find_devices is not None
        assert self._devices is not None
        before = {node.id for node in self._devices.cluster.nodes}
        devices, self._monitor = await asyncio.to_thread(self._find_devices)
        devices.save()
        self._devices, self._cluster = devices, devices.cluster
        for node in self._cluster.nodes:
            if node.id in self._absent:
                self._reports.put_nowait(NodeUp(node.id))
            elif node.id not in before:
                self._reports.put_nowait(NodeJoined(node))
        present = {node.id for node in self._cluster.nodes}
        for name in sorted(before - present):
            self._reports.put_nowait(NodeDown(name))
        self._absent = (self._absent | before) - present
        for name, numbers in devices.missing.items():
            self._reports.put_nowait(DevicesTakenReport(name, numbers, gone=True))
        if self._monitor is not None:
            self._monitor.start(self._reports.put_nowait)
        while not self._reports.empty():  # the caller sees the new devices
            await asyncio.sleep(_POLL_S)

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

    async def prepare(self, *orders: LaunchOrder) -> None:
        """Start the processes of a job's next leases, unless there are, or they cannot wait."""
        await super().prepare(*map(self._complete, orders))

    def _complete(self, order: LaunchOrder) -> LaunchOrder:
        """Return an order with the devices' names, the limit of processes and the user."""
        if self._mps is not None:
            environment = {**order.environment, **self._mps.job_environment}
            order = replace(order, environment=environment)
        if self._devices is not None:
            names = [self._devices.visible(node, number) for node, number in order.devices]
            order = replace(order, visible=tuple(name for name in names if name))
        if self._processes_per_device is not None:
            order = replace(order, max_processes=self._processes_per_device * len(order.devices))
        return replace(order, user=order.tenant if self._users else "")
