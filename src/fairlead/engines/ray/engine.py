"""The Ray engine: a lease's devices are held by a placement group, its processes by wardens.

A warden is an actor, one on each node, that starts keepers for all leases there. The scheduler
speaks to Ray through a process of its own. See docs/design/ray.md.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from fairlead.engines.base import Ended, Order, Report, Started
from fairlead.engines.keeper import lease_dir
from fairlead.engines.ray import leases as ray_leases
from fairlead.engines.ray.connection import RayError, connection
from fairlead.engines.ray.leases import Part, Watched
from fairlead.engines.ray.monitor import Watch
from fairlead.engines.ray.nodes import (
    GPU,
    RayNode,
    Told,
    alive,
    inventory,
)
from fairlead.engines.ray.transfer import RayTransfer
from fairlead.engines.shared.multi_node import split
from fairlead.engines.shared.recovery import classify_leases, tag
from fairlead.job import checkpoint
from fairlead.model.cluster import Cluster

log = structlog.get_logger("fairlead.ray")

_LAUNCH_TIMEOUT_S = 20.0
"""for a warden to start a keeper"""


@dataclass
class RayEngine:
    """Runs leases on the nodes of a Ray cluster."""

    data: Path
    """a directory that all nodes see under the same path, unless they have ``node_dir``"""
    address: str = "auto"
    """of Ray's head, host:port; default: the cluster that this machine is a node of"""
    here: str = ""
    """the address by which Ray knows this machine, where it cannot tell"""
    accelerators: str = ""
    """custom resources that are accelerators, joined by +; default: those called like one"""
    cpus_per_device: float = 1.0
    silence_s: float = 5.0
    """how long a node's warden may be silent before the node is taken for lost"""
    start_within_s: float = 60.0
    """how long Ray may take to give a lease its devices before it is given up"""
    head_within_s: float = 60.0
    """how long Ray's head may be away before leases of which nothing is heard are given up"""
    poll_s: float = 1.0
    """how often Ray is asked about nodes and placement groups"""
    node_dir: str = ""
    """a directory of each node's own, where nodes share none with the server; {node} in it stands
    for the node's name"""
    emulate: bool = False
    """steps take as long as the speeds table says: for trials on nodes without GPUs"""

    def __post_init__(self) -> None:
        self._home = self.data / "ray"
        self._root = self.data / "leases"
        for path in (self.data, self._home, self._root):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._chosen = [name for name in self.accelerators.split("+") if name]
        self._ray = connection(self.address, self.here, str(self._home / "bridge.log"))
        told = Told(self._home / "down.json")
        told.recall()
        self._watch = Watch(
            self._ray,
            f"fairlead-{tag(self._home / 'tag')}-",
            self._home_on,
            self._register,
            told,
            self._chosen,
            silence_s=self.silence_s,
            poll_s=self.poll_s,
            head_within_s=self.head_within_s,
        )
        if self.node_dir:
            self._watch.freight = RayTransfer(self._call_node_files, self._home_on)
        self._stops_requested: set[int] = set()
        """leases told to stop before they were launched"""

    # -- the protocol ---------------------------------------------------------------------------

    async def inventory(self) -> Cluster:
        """Return Ray's nodes that have accelerators; those known before if Ray is away."""
        path = self._home / "nodes.json"
        nodes: list[RayNode] = []
        for again in (True, False):  # one that was made before may break at the first question
            try:
                if await asyncio.to_thread(self._ray.wait) or not path.exists():
                    nodes = [RayNode.read(one, self._chosen) for one in await self._ray.nodes()]
                break
            except RayError:
                if not again and not path.exists():
                    raise
        self._watch.nodes = alive(nodes)
        cluster = self._register(nodes)
        self._watch.known = cluster.nodes
        return cluster

    async def launch(self, order: Order) -> None:
        """Hold a lease's devices and start its processes, once."""
        await self._begin()
        lease, directory = order.lease, self._root / str(order.lease)
        if lease in self._watch.leases:
            return
        if (directory / "order.json").exists():
            self._take_up(directory, ours=True)
            return
        one = ray_leases.write(directory, order)
        self._watch.leases[lease] = one
        if lease in self._stops_requested:
            self._stops_requested.discard(lease)
            self._watch.stop(one, order.grace_s, "")
        try:
            await self._start(one)
        except (RayError, OSError) as error:
            if self._watch.leases.get(lease) is not one:
                return  # given up meanwhile, which was told
            one.ours = False  # whoever asked hears of it by the error
            for part in one.parts:
                if part.ended is None:
                    self._watch.give_up(one, part, "lost", str(error))
            raise RayError(f"lease {lease} was not started: {error}") from None

    async def stop(self, lease: int) -> None:
        """Tell the keepers of a lease to stop their members; after the grace these are killed."""
        one = self._watch.leases.get(lease)
        if one is not None:
            self._watch.stop(one, one.order.grace_s, "")
        elif not (self._root / str(lease)).exists():
            self._stops_requested.add(lease)

    async def running(self) -> frozenset[int]:
        """Return the leases that have not ended."""
        return frozenset(lease for lease, one in self._watch.leases.items() if one.ours)

    async def adopt(self, leases: Collection[int]) -> None:
        """Keep these leases, stop what else of ours runs, report who has ended."""
        if not self._watch.known:
            await self.inventory()
        listed = (path for path in self._root.iterdir() if (path / "order.json").exists())
        found = classify_leases(listed, leases)
        for directory in found.wanted:
            if int(directory.name) not in self._watch.leases:
                self._take_up(directory, ours=True)
        for directory in found.strays:
            if int(directory.name) not in self._watch.leases:
                self._take_up(directory, ours=False)
                await self.stop(int(directory.name))
        for ended in found.never:
            self._watch.reports.put_nowait(ended)
        for lease in found.over:
            lease_dir.remove(self._root / str(lease))
        self._watch.complete = True
        await self._begin()

    async def forget(self, leases: Collection[int]) -> None:
        """Remove the directories of leases that have ended, here and on their nodes."""
        on: dict[str, list[int]] = {}
        for lease in leases:
            directory = self._root / str(lease)
            with suppress(FileNotFoundError):
                for part in split(lease_dir.read_order(directory)):
                    on.setdefault(part.devices[0][0], []).append(lease)
            lease_dir.remove(directory)
        for node, there in on.items():
            self._watch.forget(node, there)

    def reports(self) -> AsyncIterator[Report]:
        """Yield what happens to leases and nodes."""
        return self._each_report()

    async def close(self) -> None:
        """Stop watching; what runs goes on."""
        await self._watch.close()

    async def _each_report(self) -> AsyncIterator[Report]:
        while True:
            yield await self._watch.reports.get()

    # -- starting -------------------------------------------------------------------------------

    async def _begin(self) -> None:
        if not self._watch.known:
            await self.inventory()
        self._watch.begin()

    def _register(self, nodes: Iterable[RayNode]) -> Cluster:
        return inventory(self._home / "nodes.json", nodes)

    def _home_on(self, node: str) -> str:
        if self.node_dir:
            return str(Path(self.node_dir.replace("{node}", node)) / self._watch.prefix[:-1])
        return str(self._home / "nodes" / node)

    async def _call_node_files(self, name: str, method: str, *arguments: object) -> object:
        node = self._watch.nodes.get(name)
        if node is None or not node.alive:
            raise RayError(f"node {name} is not there")
        home = self._home_on(name)
        return await self._ray.call(
            node.id, "shelf", home, method, *arguments, within_s=_LAUNCH_TIMEOUT_S
        )

    async def _start(self, one: Watched) -> None:
        """Start all parts of a lease, or raise: then the caller stops what was started."""
        nodes = [await self._ready(part.node) for part in one.parts]
        if self._is_over(one):
            return
        name = f"{self._watch.prefix}{one.lease}"
        bundles = [
            node.bundle(part.order.accelerators, self.cpus_per_device)
            for node, part in zip(nodes, one.parts, strict=True)
        ]
        if not await self._ray.reserve(name, bundles, self.start_within_s):
            raise RayError(f"Ray did not give its devices in {self.start_within_s:g} s")
        await self._assign_gpus(one, nodes, name)
        if self._watch.freight is not None:
            await self._upload_checkpoint(one, self._watch.freight)
        meets_at = ""
        if len(one.parts) > 1:
            port = await self._ray.call(nodes[0].id, "port", within_s=_LAUNCH_TIMEOUT_S)
            meets_at = f"{nodes[0].address}:{port}"
        if self._is_over(one):
            await self._ray.ask("release", name)
            return
        calls = []
        for node, part in zip(nodes, one.parts, strict=True):
            part.begun = True
            part.order = replace(part.order, meets_at=meets_at)
            home = self._home_on(part.node)
            calls.append(
                self._ray.call(node.id, "launch", home, part.order, within_s=_LAUNCH_TIMEOUT_S)
            )
        await asyncio.gather(*calls)
        one.has_started = True
        log.info(
            "ray.started",
            job=one.order.job,
            lease=one.lease,
            nodes=[part.node for part in one.parts],
        )
        if one.ours:
            self._watch.reports.put_nowait(Started(one.lease))
        if one.grace_s is not None:  # it was stopped while it was being started
            grace_s, one.grace_s = one.grace_s, None
            self._watch.stop(one, grace_s, "")

    async def _upload_checkpoint(self, one: Watched, freight: RayTransfer) -> None:
        try:
            await asyncio.gather(*(freight.bring(one.order, part) for part in one.parts))
        except checkpoint.FencedError as error:
            for part in one.parts:
                part.ended = part.ended or Ended(one.lease, "refused", None, str(error))
            self._watch.conclude(one)

    async def _ready(self, name: str) -> RayNode:
        """Wait for a node's warden; return the node."""
        link = self._watch.links.get(name)
        if link is None:
            raise RayError(f"Ray has no node {name}")
        until = time.monotonic() + self.start_within_s
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(until - time.monotonic(), 0.0)):
                    await link.ready.wait()
            node = self._watch.nodes.get(name)
            if node is not None and node.id == link.node and link.ready.is_set():
                return node
            if time.monotonic() >= until:
                raise RayError(f"node {name} did not answer in {self.start_within_s:g} s")
            await asyncio.sleep(0.05)

    def _is_over(self, one: Watched) -> bool:
        """Tell whether a lease that is being started need not be; say how it ended if so."""
        if self._watch.leases.get(one.lease) is not one:
            return True
        if one.stop_at is None:
            return False
        for part in one.parts:
            part.ended = Ended(one.lease, "left", None, "it was stopped before it began")
        self._watch.conclude(one)
        return True

    async def _assign_gpus(self, one: Watched, nodes: list[RayNode], name: str) -> None:
        """Take the GPUs that Ray has given, of the number and kind that we asked for."""
        counts = {
            index: len(part.order.devices)
            for index, (node, part) in enumerate(zip(nodes, one.parts, strict=True))
            if {node.resources[kind] for kind in part.order.accelerators} == {GPU}
        }
        if not counts:
            return
        try:
            async with asyncio.timeout(self.start_within_s):
                given = await self._ray.ask("gpus", name, counts)
        except TimeoutError:
            raise RayError("Ray did not say which GPUs it has given") from None
        for index, gpus in given.items():
            _take(one.parts[index], gpus)

    def _take_up(self, directory: Path, *, ours: bool) -> None:
        """Follow a lease that was started before, or report how it ended."""
        ended = lease_dir.read_ended(directory)
        if ended is not None:
            if ours:
                self._watch.reports.put_nowait(ended)
            return
        one = ray_leases.read(directory)
        one.ours = ours
        self._watch.leases[one.lease] = one


def _take(part: Part, gpus: list[str]) -> None:
    """Give the members of a part the GPUs that Ray calls so."""
    order = part.order
    if len(gpus) != len(order.devices):
        raise RayError(f"Ray gave {len(gpus)} GPUs on {part.node}, not {len(order.devices)}")
    if all(gpu.isdigit() for gpu in gpus):
        gpus = sorted(gpus, key=int)
        order = replace(order, devices=tuple((part.node, int(gpu)) for gpu in gpus))
    part.order = replace(order, visible=tuple(gpus))
