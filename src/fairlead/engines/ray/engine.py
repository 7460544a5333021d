"""The Ray engine: placement groups hold the devices of leases, node agents run their processes.

A node agent is an actor, one per node, that starts the keepers of all leases there. The scheduler
talks to Ray through a bridge process. See docs/design/ray.md.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from fairlead.engines.base import Ended, LaunchOrder, Report, Started
from fairlead.engines.keeper import lease_dir
from fairlead.engines.ray import leases as ray_leases
from fairlead.engines.ray.connection import RayError, connection
from fairlead.engines.ray.lease_table import RayLeaseTable
from fairlead.engines.ray.leases import RayLeasePart, TrackedRayLease
from fairlead.engines.ray.monitor import RayMonitor
from fairlead.engines.ray.nodes import (
    GPU,
    RayNode,
    RayNodeStatus,
    inventory,
    latest_by_name,
)
from fairlead.engines.ray.transfer import RayTransfer
from fairlead.engines.shared.multi_node import split_by_node
from fairlead.engines.shared.nodes.files import JOB_FILE_ERRORS
from fairlead.engines.shared.nodes.registry import NodeRegistry
from fairlead.engines.shared.recovery import classify_leases, scheduler_tag
from fairlead.job import checkpoint
from fairlead.model.cluster import Cluster
from fairlead.model.lease_outcome import LeaseOutcome

log = structlog.get_logger("fairlead.ray")

_LAUNCH_TIMEOUT_S = 20.0
"""seconds that a node agent has to start a keeper"""


@dataclass
class RayEngine:
    """Runs leases on the nodes of a Ray cluster."""

    data: Path
    """data directory, shared by all nodes under the same path unless ``node_dir`` is set"""
    address: str = "auto"
    """address of Ray's head, host:port; default: the cluster that this machine belongs to"""
    here: str = ""
    """address of this machine in Ray, if Ray cannot detect it"""
    accelerators: str = ""
    """custom resources that are accelerators, joined by +; default: those named like one"""
    cpus_per_device: float = 1.0
    silence_s: float = 5.0
    """seconds without an answer from a node agent after which its node is lost"""
    start_within_s: float = 60.0
    """seconds that Ray has to allocate the devices of a lease before the lease is lost"""
    head_within_s: float = 60.0
    """seconds that Ray's head may be unreachable before silent leases are lost"""
    poll_s: float = 1.0
    """seconds between two polls of Ray's nodes and placement groups"""
    node_dir: str = ""
    """node-local directory, for nodes that share none with the server; {node} is replaced by the
    node's name"""
    emulate: bool = False
    """steps take as long as the speeds table says: for trials on nodes without GPUs"""

    def __post_init__(self) -> None:
        self._home = self.data / "ray"
        self._root = self.data / "leases"
        for path in (self.data, self._home, self._root):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._chosen = [name for name in self.accelerators.split("+") if name]
        self._prefix = f"fairlead-{scheduler_tag(self._home / 'tag')}-"
        self._ray = connection(self.address, self.here, str(self._home / "bridge.log"))
        self._table = RayLeaseTable(
            self._ray,
            self._prefix,
            self._home_on,
            self.silence_s,
            RayTransfer(self._call_node_files, self._home_on) if self.node_dir else None,
        )
        status = RayNodeStatus(self._home / "down.json")
        status.load()
        self._monitor = RayMonitor(
            self._ray,
            self._table,
            self._register,
            status,
            self._chosen,
            silence_s=self.silence_s,
            poll_s=self.poll_s,
            head_within_s=self.head_within_s,
        )
        self._stops_requested: set[int] = set()
        """leases stopped before they were launched"""

    # -- the protocol ---------------------------------------------------------------------------

    async def inventory(self) -> Cluster:
        """Return Ray's nodes with accelerators; the registered ones if Ray is unreachable."""
        path = self._home / "nodes.json"
        nodes: list[RayNode] = []
        for retry in (True, False):  # an existing connection may break at the first request
            try:
                if await asyncio.to_thread(self._ray.wait) or not path.exists():
                    nodes = [RayNode.read(node, self._chosen) for node in await self._ray.nodes()]
                break
            except RayError:
                if not retry and not path.exists():
                    raise
        self._table.nodes = latest_by_name(nodes)
        self._monitor.registry = self._register(self._table.nodes.values())
        return self._monitor.registry.cluster

    async def launch(self, order: LaunchOrder) -> None:
        """Reserve the devices of a lease and start its processes, once."""
        await self._start_monitor()
        order = self._monitor.registry.on_machines(order)
        number, directory = order.lease, self._root / str(order.lease)
        if number in self._table.leases:
            return
        if (directory / "order.json").exists():
            self._recover_lease(directory, wanted=True)
            return
        lease = ray_leases.write(directory, order)
        self._table.leases[number] = lease
        if number in self._stops_requested:
            self._stops_requested.discard(number)
            self._table.stop(lease, order.grace_s, "")
        try:
            await self._start(lease)
        except (RayError, OSError) as error:
            if self._table.leases.get(number) is not lease:
                return  # already declared lost and reported
            lease.wanted = False  # the exception reports its end
            for part in lease.parts:
                if part.ended is None:
                    self._table.declare_part_lost(lease, part, "lost", str(error))
            raise RayError(f"lease {number} was not started: {error}") from None

    async def stop(self, lease: int) -> None:
        """Ask the keepers of a lease to stop their members; they kill them after the grace."""
        tracked = self._table.leases.get(lease)
        if tracked is not None:
            self._table.stop(tracked, tracked.order.grace_s, "")
        elif not (self._root / str(lease)).exists():
            self._stops_requested.add(lease)

    async def kill(self, lease: int) -> None:
        """Ask the keepers of a lease to kill their members at once."""
        tracked = self._table.leases.get(lease)
        if tracked is None:
            await self.stop(lease)
        else:
            self._table.stop(tracked, 0.0, "")

    async def running(self) -> frozenset[int]:
        """Return the leases that have not ended."""
        leases = self._table.leases
        return frozenset(number for number, lease in leases.items() if lease.wanted)

    async def adopt(self, leases: Collection[int]) -> None:
        """Recover these leases, stop orphans, report leases that have ended."""
        if not self._monitor.registry.nodes:
            await self.inventory()
        directories = lease_dir.list_leases(self._root).values()
        listed = [path for path in directories if os.path.lexists(path / "order.json")]
        recovered = classify_leases(listed, leases)
        for directory in recovered.wanted:
            if int(directory.name) not in self._table.leases:
                self._recover_lease(directory, wanted=True)
        for directory in recovered.orphans:
            if int(directory.name) not in self._table.leases:
                self._recover_lease(directory, wanted=False)
                await self.stop(int(directory.name))
        for ended in recovered.never_started:  # a job may have removed its directory
            self._monitor.removed[ended.lease] = ended
        for lease in recovered.ended:
            lease_dir.remove(self._root / str(lease))
        self._monitor.complete = True
        await self._start_monitor()

    async def forget(self, leases: Collection[int]) -> None:
        """Remove the directories of ended leases, here and on their nodes."""
        by_node: dict[str, list[int]] = {}
        for lease in leases:
            directory = self._root / str(lease)
            with suppress(FileNotFoundError):
                for part in split_by_node(lease_dir.read_order(directory)):
                    by_node.setdefault(part.devices[0][0], []).append(lease)
            lease_dir.remove(directory)
        for node, numbers in by_node.items():
            self._table.forget(node, numbers)

    def reports(self) -> AsyncIterator[Report]:
        """Yield reports on leases and nodes."""
        return self._iterate_reports()

    async def close(self) -> None:
        """Stop monitoring; leases continue to run."""
        await self._monitor.close()

    async def _iterate_reports(self) -> AsyncIterator[Report]:
        while True:
            yield await self._table.reports.get()

    # -- start ----------------------------------------------------------------------------------

    async def _start_monitor(self) -> None:
        if not self._monitor.registry.nodes:
            await self.inventory()
        self._monitor.start()

    def _register(self, nodes: Iterable[RayNode]) -> NodeRegistry:
        return inventory(self._home / "nodes.json", nodes)

    def _home_on(self, node: str) -> str:
        if self.node_dir:
            return str(Path(self.node_dir.replace("{node}", node)) / self._prefix[:-1])
        return str(self._home / "nodes" / node)

    async def _call_node_files(self, name: str, method: str, *arguments: object) -> object:
        node = self._table.nodes.get(name)
        if node is None or not node.alive:
            raise RayError(f"node {name} is down")
        home = self._home_on(name)
        answer = await self._ray.call(
            node.id, "node_files", home, method, *arguments, within_s=_LAUNCH_TIMEOUT_S
        )
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _start(self, lease: TrackedRayLease) -> None:
        """Start all parts of a lease; on an exception the caller stops the started ones."""
        nodes = [await self._wait_for_agent(part.node) for part in lease.parts]
        if self._has_ended(lease):
            return
        name = f"{self._prefix}{lease.lease}"
        bundles = [
            node.bundle(part.order.accelerators, self.cpus_per_device)
            for node, part in zip(nodes, lease.parts, strict=True)
        ]
        if not await self._ray.reserve(name, bundles, self.start_within_s):
            raise RayError(f"Ray did not allocate its devices within {self.start_within_s:g} s")
        await self._assign_gpus(lease, nodes, name)
        await self._upload_checkpoint(lease)
        meets_at = ""
        if len(lease.parts) > 1:
            home = self._home_on(lease.parts[0].node)
            port = await self._ray.call(
                nodes[0].id, "port", home, lease.lease, within_s=_LAUNCH_TIMEOUT_S
            )
            meets_at = f"{nodes[0].address}:{port}"
        if self._has_ended(lease):
            await self._ray.ask("release", name)
            return
        calls = []
        for node, part in zip(nodes, lease.parts, strict=True):
            part.begun = True
            part.order = replace(part.order, meets_at=meets_at)
            home = self._home_on(part.node)
            calls.append(
                self._ray.call(node.id, "launch", home, part.order, within_s=_LAUNCH_TIMEOUT_S)
            )
        await asyncio.gather(*calls)
        self._report_start(lease)

    def _report_start(self, lease: TrackedRayLease) -> None:
        lease.has_started = True
        names = [part.node for part in lease.parts]
        log.info("ray.started", job=lease.order.job, lease=lease.lease, nodes=names)
        if lease.wanted:
            self._table.reports.put_nowait(Started(lease.lease))
        if lease.grace_s is not None:  # stopped during its start
            grace_s, lease.grace_s = lease.grace_s, None
            self._table.stop(lease, grace_s, "")

    async def _upload_checkpoint(self, lease: TrackedRayLease) -> None:
        transfer = self._table.transfer
        if transfer is None:
            return
        try:
            await asyncio.gather(*(transfer.upload(lease.order, part) for part in lease.parts))
        except JOB_FILE_ERRORS as error:
            fence = error.fence if isinstance(error, checkpoint.FencedError) else None
            ending: LeaseOutcome = "failed" if fence is None else "refused"
            ended = Ended(lease.lease, ending, None, str(error), fence=fence)
            for part in lease.parts:
                part.ended = part.ended or ended
            self._table.report_end(lease)

    async def _wait_for_agent(self, name: str) -> RayNode:
        """Wait until a node's agent answers; return the node."""
        link = self._monitor.links.get(name)
        if link is None:
            raise RayError(f"node {name} is not in the Ray cluster")
        until = time.monotonic() + self.start_within_s
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(until - time.monotonic(), 0.0)):
                    await link.ready.wait()
            node = self._table.nodes.get(name)
            if node is not None and node.id == link.node and link.ready.is_set():
                return node
            if time.monotonic() >= until:
                raise RayError(f"no answer from node {name} within {self.start_within_s:g} s")
            await asyncio.sleep(0.05)

    def _has_ended(self, lease: TrackedRayLease) -> bool:
        """Return whether a lease ended during its start; report the end of a stopped one."""
        if self._table.leases.get(lease.lease) is not lease:
            return True
        if lease.stop_at is None:
            return False
        for part in lease.parts:
            part.ended = Ended(lease.lease, "left", None, "stopped before it started")
        self._table.report_end(lease)
        return True

    async def _assign_gpus(self, lease: TrackedRayLease, nodes: list[RayNode], name: str) -> None:
        """Assign the GPUs that Ray allocated to the members of each part."""
        counts = {
            index: len(part.order.devices)
            for index, (node, part) in enumerate(zip(nodes, lease.parts, strict=True))
            if {node.resources[accelerator] for accelerator in part.order.accelerators} == {GPU}
        }
        if not counts:
            return
        try:
            async with asyncio.timeout(self.start_within_s):
                allocated = await self._ray.ask("gpus", name, counts)
        except TimeoutError:
            raise RayError("Ray did not return the IDs of the allocated GPUs") from None
        for index, gpus in allocated.items():
            _set_visible_gpus(lease.parts[index], gpus)

    def _recover_lease(self, directory: Path, *, wanted: bool) -> None:
        """Track a lease that was started before, or report its end."""
        number = int(directory.name)
        ended = lease_dir.read_ended(directory, number)
        if ended is not None:
            if wanted:
                self._table.reports.put_nowait(ended)
            return
        try:
            lease = ray_leases.read(directory)
        except FileNotFoundError:
            if wanted:
                lost = Ended(number, "lost", None, "order.json: damaged")
                self._monitor.removed[number] = lost
            return
        lease.wanted = wanted
        self._table.leases[lease.lease] = lease


def _set_visible_gpus(part: RayLeasePart, gpus: list[str]) -> None:
    """Set the GPUs, by Ray's IDs, that the members of a part may use."""
    order = part.order
    if len(gpus) != len(order.devices):
        count = len(order.devices)
        raise RayError(f"Ray allocated {len(gpus)} GPUs on {part.node}: expected {count}")
    if all(gpu.isdigit() for gpu in gpus):
        gpus = sorted(gpus, key=int)
        order = replace(order, devices=tuple((part.node, int(gpu)) for gpu in gpus))
    part.order = replace(order, visible=tuple(gpus))
