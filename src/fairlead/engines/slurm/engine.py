"""The Slurm engine: submits one Slurm job for each node of a lease, pinned to that node.

The script of each job is a keeper. Scheduler and keepers communicate through the data directory,
which all nodes share; Slurm only allocates the devices and starts the keepers. See
docs/design/slurm.md.
"""

import asyncio
import os
import pwd
import shlex
import sys
import time
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from fairlead.engines.base import LaunchOrder, Report
from fairlead.engines.keeper import lease_dir
from fairlead.engines.shared.recovery import classify_leases, scheduler_tag
from fairlead.engines.slurm import leases as slurm_leases
from fairlead.engines.slurm.commands import Slurm, SlurmError, slurm_environment
from fairlead.engines.slurm.foreign_jobs import ForeignDevices
from fairlead.engines.slurm.handover import hand_over
from fairlead.engines.slurm.lease_table import SlurmLeaseTable
from fairlead.engines.slurm.leases import SlurmLeasePart, TrackedSlurmLease
from fairlead.engines.slurm.monitor import SlurmMonitor
from fairlead.engines.slurm.node_selection import NodeSelection
from fairlead.engines.slurm.nodes import SlurmNodeStatus
from fairlead.model.cluster import Cluster

log = structlog.get_logger("fairlead.slurm")


@dataclass
class SlurmEngine:
    """Runs leases on the nodes of a Slurm partition or reservation."""

    data: Path
    """data directory, shared by all nodes under the same path"""
    partition: str = ""
    """partition to use; default: Slurm's default partition"""
    reservation: str = ""
    """reservation to use, with its nodes"""
    account: str = ""
    qos: str = ""
    users: bool = False
    """submit as the Unix user with the name of the job's tenant; needs root"""
    node_dir: str = ""
    """node-local directory to which members save; {node} is replaced by the node's name;
    checkpoints are transferred to ``data`` and to the next node"""
    python: str = sys.executable
    """interpreter on the nodes, with Fairlead installed"""
    cpus_per_device: int = 1
    memory_per_device_gib: float = 0.0
    """0: the partition's default"""
    silence_s: float = 5.0
    """seconds without a heartbeat of a keeper after which its node is lost"""
    start_within_s: float = 60.0
    """seconds that Slurm has to start a lease before the lease is lost"""
    poll_s: float = 2.0
    """seconds between two polls of Slurm's nodes and jobs"""
    emulate: bool = False
    """steps take as long as the speeds table says: for trials on nodes without GPUs"""
    inherits: tuple[str, ...] = ()
    """variables that jobs inherit from the server besides the usual ones; NAME or PREFIX_*"""

    def __post_init__(self) -> None:
        self._home = self.data / "slurm"
        self._root = self.data / "leases"
        for path in (self.data, self._home, self._root):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.users:
            _allow_traversal(self.data)
        self._prefix = f"fairlead-{scheduler_tag(self._home / 'tag')}-"
        self._slurm = Slurm(
            slurm_environment(os.environ, for_others=self.users, more=self.inherits)
        )
        user = None if self.users else os.geteuid()
        self._table = SlurmLeaseTable(self._slurm, self._prefix, self._root, user)
        self._selection = NodeSelection(
            self._slurm, self._home / "nodes.json", self.partition, self.reservation
        )
        status = SlurmNodeStatus(self._home / "down.json", bool(self.reservation))
        status.load()
        self._monitor = SlurmMonitor(
            self._table,
            self._home / "clock",
            self._selection,
            status,
            ForeignDevices(self.cpus_per_device),
            silence_s=self.silence_s,
            start_within_s=self.start_within_s,
            poll_s=self.poll_s,
        )
        self._stops_requested: set[int] = set()
        """leases stopped before they were launched"""
        self._submissions: set[asyncio.Future[list[None]]] = set()
        """submissions in progress"""

    # -- the protocol ---------------------------------------------------------------------------

    async def inventory(self) -> Cluster:
        """Return the nodes of the partition or reservation that have GPUs.

        If Slurm's controller is unreachable, return the registered nodes: running leases can be
        recovered and followed without it.
        """
        return await self._selection.find()

    async def launch(self, order: LaunchOrder) -> None:
        """Submit a lease, once."""
        if not self._selection.addresses:
            await self._selection.locate()
        order = self._selection.registry.on_machines(order)
        directory, number = self._root / str(order.lease), order.lease
        if number in self._table.leases:
            return
        if (directory / "order.json").exists():
            self._recover_lease(directory, wanted=True)
            return
        parts = slurm_leases.write(
            directory,
            order,
            f"{self._prefix}{number}",
            self._selection.addresses,
            self._user_of(order.tenant),
        )
        lease = TrackedSlurmLease(order, directory, parts, time.monotonic())
        self._table.leases[number] = lease
        self._monitor.start()
        if number in self._stops_requested:
            self._stops_requested.discard(number)
            lease.submitted = True
            await self.stop(number)
            return
        submission = asyncio.gather(*(self._submit(part) for part in parts))
        self._submissions.add(submission)
        try:
            await submission
        except (SlurmError, OSError, KeyError) as error:
            del self._table.leases[number]
            for part in parts:
                await asyncio.to_thread(lease.declare_lost, part, "lost", str(error))
            lease.end()
            await self._table.cancel(parts)
            raise SlurmError(f"lease {number} was not submitted: {error}") from None
        finally:
            self._submissions.discard(submission)
        lease.since = time.monotonic()
        lease.submitted = True
        nodes = [part.node for part in parts]
        log.info("slurm.submitted", job=order.job, lease=number, nodes=nodes)
        if lease.stop_at is not None:  # stopped during its submission
            await self._stop_slurm_jobs(lease)

    async def stop(self, lease: int) -> None:
        """Ask the keepers of a lease to stop their members; they kill them after the grace."""
        tracked = self._table.leases.get(lease)
        if tracked is None:
            if not (self._root / str(lease)).exists():
                self._stops_requested.add(lease)
        elif tracked.stop_at is None:
            tracked.stop_at = time.monotonic()
            tracked.request_stop(tracked.order.grace_s)
            if tracked.submitted:
                await self._stop_slurm_jobs(tracked)

    async def kill(self, lease: int) -> None:
        """Ask the keepers of a lease to kill their members; after a while Slurm does."""
        tracked = self._table.leases.get(lease)
        if tracked is None:
            await self.stop(lease)
            return
        tracked.order = replace(tracked.order, grace_s=0.0)
        tracked.stop_at = time.monotonic()
        tracked.request_stop(0.0)
        if tracked.submitted:
            await self._stop_slurm_jobs(tracked)

    async def running(self) -> frozenset[int]:
        """Return the leases that have not ended."""
        leases = self._table.leases
        return frozenset(number for number, lease in leases.items() if lease.wanted)

    async def adopt(self, leases: Collection[int]) -> None:
        """Recover these leases, stop orphans, report leases that have ended."""
        if not self._selection.registry.nodes:
            await self.inventory()
        listed = await asyncio.to_thread(slurm_leases.list_directories, self._root)
        recovered = classify_leases(listed, leases)
        for directory in recovered.wanted:
            if int(directory.name) not in self._table.leases:
                self._recover_lease(directory, wanted=True)
        for directory in recovered.orphans:
            if int(directory.name) not in self._table.leases:
                self._recover_lease(directory, wanted=False)
                await self.stop(int(directory.name))
        self._table.settled.update(recovered.ended)
        for ended in recovered.never_started:  # a job may have removed its directory
            self._table.removed[ended.lease] = ended.message
        self._monitor.complete = True
        await self._monitor.read_lease_dirs()
        if self._selection.addresses:  # otherwise Slurm is down, and polling it takes long
            await self._table.suppress_slurm_errors(self._monitor.poll_slurm())
        self._monitor.start()

    async def forget(self, leases: Collection[int]) -> None:
        """Release the devices of ended leases; remove their directories after their jobs.

        The successors on their devices are launched before this call, and must be in Slurm's
        queue when the devices become free.
        """
        if self._submissions:
            await asyncio.wait(tuple(self._submissions))
        await asyncio.to_thread(slurm_leases.release_devices, self._root, leases)
        self._table.settled.update(leases)

    def reports(self) -> AsyncIterator[Report]:
        """Yield reports on leases and nodes."""
        return self._iterate_reports()

    async def close(self) -> None:
        """Stop monitoring; leases continue to run."""
        await self._monitor.close()

    async def _iterate_reports(self) -> AsyncIterator[Report]:
        while True:
            yield await self._table.reports.get()

    # -- start and stop -------------------------------------------------------------------------

    def _user_of(self, tenant: str) -> int:
        """Return the Unix user ID that a tenant's Slurm jobs run as, -1 if there is no user."""
        if not self.users:
            return os.geteuid()
        try:
            return pwd.getpwnam(tenant).pw_uid
        except KeyError:
            return -1

    async def _submit(self, part: SlurmLeasePart) -> None:
        # A signal before the keeper has its handler must not end it: the file `stop` remains.
        script = ["#!/bin/sh", "trap '' TERM"]
        options = self._sbatch_options(part)
        if self.users:
            user = pwd.getpwnam(part.order.tenant)
            await asyncio.to_thread(hand_over, part, user)
            options += [f"--uid={user.pw_uid}", f"--gid={user.pw_gid}"]
            own = {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
            script += [f"export {name}={shlex.quote(value)}" for name, value in own.items()]
        keeper = [self.python, "-m", "fairlead.engines.slurm.keeper", str(part.directory)]
        if self.node_dir:
            keeper.append(self._home_on(part.node, part.order.tenant))
        script.append(f"exec {shlex.join(keeper)}\n")
        await self._slurm.submit("\n".join(script), options)

    def _sbatch_options(self, part: SlurmLeasePart) -> list[str]:
        accelerators = part.order.accelerators
        count = len(accelerators)
        gres = ",".join(
            f"gpu:{name}:{accelerators.count(name)}" if name != "gpu" else f"gpu:{count}"
            for name in dict.fromkeys(accelerators)
        )
        options = [
            f"--job-name={part.name}",
            f"--nodelist={part.node}",
            "--nodes=1",
            "--ntasks=1",
            f"--cpus-per-task={self.cpus_per_device * count}",
            f"--gres={gres}",
            "--no-requeue",  # the scheduler decides on retries
            f"--output={part.directory / 'keeper.log'}",
            "--open-mode=append",
            "--chdir=/",
        ]
        if self.memory_per_device_gib:
            options.append(f"--mem={int(self.memory_per_device_gib * count * 1024)}M")
        for name in ("partition", "reservation", "account", "qos"):
            if getattr(self, name):
                options.append(f"--{name}={getattr(self, name)}")
        return options

    def _home_on(self, node: str, tenant: str) -> str:
        """Return the directory on a node to which jobs save; with ``users``, one per tenant."""
        name = self._prefix[:-1] + (f"-{tenant}" if self.users else "")
        return str(Path(self.node_dir.replace("{node}", node)) / name)

    async def _stop_slurm_jobs(self, lease: TrackedSlurmLease) -> None:
        """Cancel pending jobs and signal running ones, so that the stop takes effect at once."""
        calls = []
        for part in lease.parts:
            if part.ended is None:
                started = part.heartbeat is not None
                call = self._slurm.signal if started else self._slurm.cancel_waiting
                calls.append(call(part.name))
        await self._table.suppress_slurm_errors(*calls)
        self._monitor.poll_soon()

    def _recover_lease(self, directory: Path, *, wanted: bool) -> None:
        """Track a lease that was submitted before, or report its end."""
        number = int(directory.name)
        ended = lease_dir.read_ended(directory, number)
        if ended is not None:
            if wanted:
                self._table.reports.put_nowait(ended)
            return
        try:
            order = lease_dir.read_order(directory)
        except FileNotFoundError:
            if wanted:
                self._table.removed[number] = "order.json: damaged"
            else:
                self._table.settled.add(number)
            return
        parts = slurm_leases.read(
            directory, order, self._prefix + directory.name, self._user_of(order.tenant)
        )
        lease = TrackedSlurmLease(
            order, directory, parts, time.monotonic(), submitted=True, fresh=False
        )
        lease.wanted = wanted
        self._table.leases[order.lease] = lease


def _allow_traversal(data: Path) -> None:
    """Let tenants' processes reach their own directories and read nothing else."""
    for path in data.iterdir():
        if path.is_file():
            path.chmod(0o600)
    for path in (data, data / "leases", data / "jobs"):
        path.mkdir(exist_ok=True)
        path.chmod(0o711)
