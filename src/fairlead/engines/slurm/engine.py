"""The Slurm engine: every lease is submitted to Slurm, pinned to its nodes, and kept there.

One Slurm job for each node of a lease, whose script is a keeper. What scheduler and keepers have
to say to each other goes through the data directory, which all nodes share; Slurm only allocates
the devices and starts the keepers. See docs/design/slurm.md.
"""

import asyncio
import os
import pwd
import shlex
import sys
import time
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from pathlib import Path

import structlog

from fairlead.engines.base import Order, Report
from fairlead.engines.keeper import lease_dir
from fairlead.engines.shared.recovery import classify_leases, tag
from fairlead.engines.slurm import leases as slurm_leases
from fairlead.engines.slurm.commands import Slurm, SlurmError, environment_of
from fairlead.engines.slurm.foreign_jobs import Others
from fairlead.engines.slurm.leases import Part, Watched
from fairlead.engines.slurm.monitor import Watch
from fairlead.engines.slurm.node_selection import Choice
from fairlead.engines.slurm.nodes import SlurmNodeStatus
from fairlead.model.cluster import Cluster

log = structlog.get_logger("fairlead.slurm")


@dataclass
class SlurmEngine:
    """Runs leases on the nodes of a Slurm partition or reservation."""

    data: Path
    """a directory that all nodes see under the same path"""
    partition: str = ""
    """the nodes to use; default: Slurm's default partition"""
    reservation: str = ""
    """use the nodes of this reservation, under it"""
    account: str = ""
    qos: str = ""
    users: bool = False
    """submit as the Unix user who is called like the job's tenant; needs root"""
    node_dir: str = ""
    """a directory of each node's own to which members save, {node} in it stands for the node's
    name; what they save is carried to ``data`` and to the next node"""
    python: str = sys.executable
    """the interpreter on the nodes, with Fairlead installed"""
    cpus_per_device: int = 1
    memory_per_device_gib: float = 0.0
    """0: what the partition gives by default"""
    silence_s: float = 5.0
    """how long a keeper may be silent before its node is taken for lost"""
    start_within_s: float = 60.0
    """how long Slurm may take to start a lease before it is given up"""
    poll_s: float = 2.0
    """how often Slurm is asked about nodes and jobs"""
    emulate: bool = False
    """steps take as long as the speeds table says: for trials on nodes without GPUs"""

    def __post_init__(self) -> None:
        self._home = self.data / "slurm"
        self._root = self.data / "leases"
        for path in (self.data, self._home, self._root):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.users:
            _allow_traversal(self.data)
        self._prefix = f"fairlead-{tag(self._home / 'tag')}-"
        self._slurm = Slurm(environment_of(os.environ, for_others=self.users))
        nodes = SlurmNodeStatus(self._home / "down.json", bool(self.reservation))
        nodes.recall()
        self._choice = Choice(
            self._slurm, self._home / "nodes.json", self.partition, self.reservation
        )
        self._watch = Watch(
            self._slurm,
            self._prefix,
            self._root,
            self._home / "clock",
            self._choice,
            nodes,
            Others(self.cpus_per_device),
            silence_s=self.silence_s,
            start_within_s=self.start_within_s,
            poll_s=self.poll_s,
        )
        self._stops_requested: set[int] = set()
        """leases told to stop before they were launched"""
        self._submissions: set[asyncio.Future[list[None]]] = set()
        """under way"""

    # -- the protocol ---------------------------------------------------------------------------

    async def inventory(self) -> Cluster:
        """Return the partition's or reservation's nodes that have GPUs.

        If Slurm's controller is away they are those that were found last: what runs can be adopted
        and heard of without it.
        """
        return await self._choice.find()

    async def launch(self, order: Order) -> None:
        """Submit a lease, once."""
        if not self._choice.addresses:
            await self._choice.locate()
        directory, lease = self._root / str(order.lease), order.lease
        if lease in self._watch.leases:
            return
        if (directory / "order.json").exists():
            self._take_up(directory, ours=True)
            return
        parts = slurm_leases.write(
            directory, order, f"{self._prefix}{lease}", self._choice.addresses
        )
        watched = Watched(order, directory, parts, time.monotonic())
        self._watch.leases[lease] = watched
        self._watch.begin()
        if lease in self._stops_requested:
            self._stops_requested.discard(lease)
            watched.submitted = True
            await self.stop(lease)
            return
        submission = asyncio.gather(*(self._submit(part) for part in parts))
        self._submissions.add(submission)
        try:
            await submission
        except (SlurmError, OSError, KeyError) as error:
            del self._watch.leases[lease]
            for part in parts:
                watched.give_up(part, "lost", str(error))
            watched.end()
            await self._watch.quietly(*(self._slurm.cancel(part.name) for part in parts))
            raise SlurmError(f"lease {lease} was not submitted: {error}") from None
        finally:
            self._submissions.discard(submission)
        watched.since = time.monotonic()
        watched.submitted = True
        log.info(
            "slurm.submitted", job=order.job, lease=lease, nodes=[part.node for part in parts]
        )
        if watched.stop_at is not None:  # it was stopped while it was being submitted
            await self._stop_slurm_jobs(watched)

    async def stop(self, lease: int) -> None:
        """Tell the keepers of a lease to stop their members; after the grace these are killed."""
        watched = self._watch.leases.get(lease)
        if watched is None:
            if not (self._root / str(lease)).exists():
                self._stops_requested.add(lease)
        elif watched.stop_at is None:
            watched.stop_at = time.monotonic()
            watched.tell_to_stop(watched.order.grace_s)
            if watched.submitted:
                await self._stop_slurm_jobs(watched)

    async def running(self) -> frozenset[int]:
        """Return the leases that have not ended."""
        return frozenset(lease for lease, one in self._watch.leases.items() if one.ours)

    async def adopt(self, leases: Collection[int]) -> None:
        """Keep these leases, stop what else of ours Slurm runs, report who has ended."""
        if not self._choice.known:
            await self.inventory()
        listed = await asyncio.to_thread(slurm_leases.listed, self._root)
        found = classify_leases(listed, leases)
        for directory in found.wanted:
            if int(directory.name) not in self._watch.leases:
                self._take_up(directory, ours=True)
        for directory in found.strays:
            if int(directory.name) not in self._watch.leases:
                self._take_up(directory, ours=False)
                await self.stop(int(directory.name))
        self._watch.settled.update(found.over)
        for ended in found.never:
            self._watch.reports.put_nowait(ended)
        self._watch.complete = True
        await self._watch.look()
        if self._choice.addresses:  # else Slurm does not answer, which takes it its time
            await self._watch.quietly(self._watch.ask())
        self._watch.begin()

    async def forget(self, leases: Collection[int]) -> None:
        """Let their keepers go; remove their directories once Slurm has cleared the jobs away.

        What takes over their devices is launched before; it shall be in Slurm's queue by then.
        """
        if self._submissions:
            await asyncio.wait(tuple(self._submissions))
        await asyncio.to_thread(slurm_leases.let_go, self._root, leases)
        self._watch.settled.update(leases)

    def reports(self) -> AsyncIterator[Report]:
        """Yield what happens to leases and nodes."""
        return self._each_report()

    async def close(self) -> None:
        """Stop watching; what runs goes on."""
        await self._watch.close()

    async def _each_report(self) -> AsyncIterator[Report]:
        while True:
            yield await self._watch.reports.get()

    # -- submitting and stopping ----------------------------------------------------------------

    async def _submit(self, part: Part) -> None:
        order, directory = part.order, part.directory
        kinds = order.accelerators
        # A signal that comes before the keeper listens must not end it: the file `stop` says it.
        script = ["#!/bin/sh", "trap '' TERM"]
        gres = ",".join(
            f"gpu:{kind}:{kinds.count(kind)}" if kind != "gpu" else f"gpu:{len(kinds)}"
            for kind in dict.fromkeys(kinds)
        )
        options = [
            f"--job-name={part.name}",
            f"--nodelist={part.node}",
            "--nodes=1",
            "--ntasks=1",
            f"--cpus-per-task={self.cpus_per_device * len(kinds)}",
            f"--gres={gres}",
            "--no-requeue",  # the scheduler decides what runs again, and where
            f"--output={directory / 'keeper.log'}",
            "--open-mode=append",
            "--chdir=/",
        ]
        if self.memory_per_device_gib:
            options.append(f"--mem={int(self.memory_per_device_gib * len(kinds) * 1024)}M")
        for name in ("partition", "reservation", "account", "qos"):
            if getattr(self, name):
                options.append(f"--{name}={getattr(self, name)}")
        if self.users:
            user = pwd.getpwnam(order.tenant)
            _chown_to_tenant(part, user)
            options += [f"--uid={user.pw_uid}", f"--gid={user.pw_gid}"]
            own = {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
            script += [f"export {name}={shlex.quote(value)}" for name, value in own.items()]
        keeper = [self.python, "-m", "fairlead.engines.slurm.keeper", str(directory)]
        if self.node_dir:
            keeper.append(self._home_on(part.node, order.tenant))
        script.append(f"exec {shlex.join(keeper)}\n")
        await self._slurm.submit("\n".join(script), options)

    def _home_on(self, node: str, tenant: str) -> str:
        """Return where our jobs save on a node; tenants' users have a directory each."""
        name = self._prefix[:-1] + (f"-{tenant}" if self.users else "")
        return str(Path(self.node_dir.replace("{node}", node)) / name)

    async def _stop_slurm_jobs(self, watched: Watched) -> None:
        """Have Slurm drop what waits and signal what runs, so that nobody waits for a look."""
        calls = []
        for part in watched.parts:
            if part.ended is None:
                begun = part.beat is not None
                act = self._slurm.signal if begun else self._slurm.cancel_waiting
                calls.append(act(part.name))
        await self._watch.quietly(*calls)
        self._watch.poll_soon()

    def _take_up(self, directory: Path, *, ours: bool) -> None:
        """Follow a lease that was submitted before, or report how it ended."""
        order = lease_dir.read_order(directory)
        ended = lease_dir.read_ended(directory)
        if ended is not None:
            if ours:
                self._watch.reports.put_nowait(ended)
            return
        parts = slurm_leases.read(directory, order, self._prefix + directory.name)
        watched = Watched(order, directory, parts, time.monotonic(), submitted=True, fresh=False)
        watched.ours = ours
        self._watch.leases[order.lease] = watched


def _allow_traversal(data: Path) -> None:
    """Let tenants' processes pass to their own directories, and see nothing else here."""
    for path in data.iterdir():
        if path.is_file():
            path.chmod(0o600)
    for path in (data, data / "leases", data / "jobs"):
        path.mkdir(exist_ok=True)
        path.chmod(0o711)


def _chown_to_tenant(part: Part, user: pwd.struct_passwd) -> None:
    """Give a tenant's user the directories of a lease and its job."""
    order = part.order
    part.directory.parent.chmod(0o711)
    given = [part.directory, *part.directory.iterdir()]
    for name in (order.checkpoint_dir, order.log_dir):
        path = Path(name)
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)
        given += [path, *path.iterdir()]
    for path in given:
        os.chown(path, user.pw_uid, user.pw_gid)
