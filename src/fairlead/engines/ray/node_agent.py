"""The node agent: a Ray actor that supervises all keepers on one node.

Each node has one agent for all schedulers that use the cluster. Each scheduler has a home there: a
directory with its leases on the node. Keepers, lease directories and fences are those of the local
engine; the actor only makes them reachable. It holds no state that is not also on disk: keepers
outlive the agent, and its successor recovers them.
"""

import asyncio
import os
import signal
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.engines.base import Ended, LaunchOrder, Report
from fairlead.engines.keeper import lease_dir
from fairlead.engines.keeper.environment import HeldPorts, inherited
from fairlead.engines.keeper.orphans import orphans_in
from fairlead.engines.keeper.start import start_keeper
from fairlead.engines.keeper.supervisor import KeeperSupervisor
from fairlead.engines.ray.keeper import RAYLET_PID_VARIABLE
from fairlead.engines.shared.nodes.files import JOB_FILE_ERRORS, CheckpointSaved, NodeFiles

PROTOCOL = 5
"""version of the calls and values between scheduler and node agent; part of the actor's name, so
that a scheduler never calls an agent that runs other code (increase it with every change of these)
"""
_CHECKPOINT_POLL_S = 0.1
"""seconds between two searches for checkpoints that only this node has"""
_IDLE_S = 900.0
"""seconds without calls and keepers after which an agent exits"""


@dataclass(frozen=True, slots=True)
class AgentReports:
    """Reports of one node agent."""

    last: int
    """number of the last report; the next call asks for those after it"""
    reports: tuple[Report | CheckpointSaved, ...]
    alive: frozenset[int]
    """leases with a running keeper"""


class SchedulerAgent(KeeperSupervisor):
    """Supervises one scheduler's leases on this node."""

    _has_servers_clock = False

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.files = NodeFiles(home)
        self._ports: dict[int, HeldPorts] = {}
        """lease → port of its gang's rendezvous on this node"""
        self._private = False
        """only this node has the checkpoints, so new ones are reported"""
        self._reports_kept: list[Report | CheckpointSaved] = []
        self._first = 0
        """number of the first report in ``_reports_kept``"""
        self._new = asyncio.Event()
        self._listening = asyncio.create_task(self._listen())

    async def reconcile(self, wanted: Mapping[int, float | None], private: bool) -> int:
        """Keep the wanted leases and stop all others; return the number of the next report.

        ``wanted`` maps a lease to its grace in seconds if it has to stop, else to None. A wanted
        lease that was never started is marked as lost, so that a late launch starts nothing.
        """
        self._first += len(self._reports_kept)
        self._reports_kept.clear()
        self.files.report_again()
        if private and not self._private:
            self._private = True
            self._saving = asyncio.create_task(self._poll_checkpoints())
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)  # a job may have removed it
        for lease in wanted:
            self._mark_if_never_started(lease)
        for lease, directory in lease_dir.list_leases(self._root).items():
            if lease in self._pidfds:
                pass
            elif lease in wanted or lease_dir.is_alive(directory):
                self._recover(lease)
            if lease not in wanted:
                await self.request_stop(lease, 0.0, "")
                # A lease marked as lost before its start stays marked: its launch may be late.
                if lease not in self._pidfds and os.path.lexists(directory / "order.json"):
                    lease_dir.remove(directory)
        for lease in [lease for lease in self._pidfds if lease not in wanted]:
            await self.request_stop(lease, 0.0, "")  # a job may have removed its directory
        for lease, grace_s in wanted.items():
            if grace_s is not None:
                await self.request_stop(lease, grace_s, "")
        return self._first

    def _mark_if_never_started(self, lease: int) -> None:
        """Mark a lease as lost that has no order, unless a job has removed it and still runs."""
        directory = self._directory(lease)
        if os.path.lexists(directory / "order.json"):
            return
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        runs = lease in self._pidfds or orphans_in(directory)
        if not runs and lease_dir.read_ended(directory, lease) is None:
            lease_dir.write_ended(directory, lease_dir.lost_before_start(lease))

    async def request_stop(self, lease: int, grace_s: float, why: str) -> None:
        """Ask a keeper to stop its members; it kills them after the grace."""
        if lease not in self._pidfds:
            return
        request = {"grace_s": grace_s, "why": why}
        try:
            lease_dir.write_json(self._directory(lease) / "stop", request)
        except OSError:  # a job has removed the directory: the signal alone tells no grace
            if not grace_s:
                await super().kill(lease)
                return
        await self.stop(lease)

    async def kill(self, lease: int) -> None:
        """Kill a keeper that does not stop; its members die with it."""
        if lease in self._pidfds:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfds[lease], signal.SIGKILL)

    def hold_port(self, lease: int) -> int:
        """Return a free port, held until the lease is forgotten."""
        return self._ports.setdefault(lease, HeldPorts()).hold("")

    async def forget(self, leases: Collection[int]) -> None:
        """Remove the directories of ended leases and release their ports."""
        for lease in leases:
            self._ports.pop(lease, HeldPorts()).close()
        await super().forget(leases)

    async def reports_after(self, number: int, wait_s: float) -> AgentReports:
        """Return the reports after a number; wait for the first one if there is none yet."""
        if self._first + len(self._reports_kept) <= number:
            self._new.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._new.wait()
        # The caller has received the reports up to this number; later ones stay for a retry.
        received = max(number - self._first, 0)
        del self._reports_kept[:received]
        self._first += received
        reports = tuple(self._reports_kept)
        last = self._first + len(self._reports_kept)
        return AgentReports(last, reports, frozenset(self._pidfds))

    async def _listen(self) -> None:
        async for report in self.reports():
            if isinstance(report, Ended) and self._private:
                await self._report_checkpoint(report.lease)  # before the end of its lease
            self._reports_kept.append(report)
            self._new.set()

    async def _poll_checkpoints(self) -> None:
        while True:
            for lease in tuple(self._pidfds):
                await self._report_checkpoint(lease)
            await asyncio.sleep(_CHECKPOINT_POLL_S)

    async def _report_checkpoint(self, lease: int) -> None:
        try:
            order = lease_dir.read_order(self._directory(lease))
            # The job's directory may hold any number of files.
            saved = await asyncio.to_thread(self.files.new_checkpoint, order)
        except OSError:  # never started, or the job has damaged its files
            return
        if saved is not None:
            self._reports_kept.append(saved)
            self._new.set()

    def _report_end(self, lease: int) -> None:
        # In a directory that the job has removed its end cannot be persisted.
        with suppress(OSError):
            self._directory(lease).mkdir(parents=True, exist_ok=True, mode=0o700)
        super()._report_end(lease)

    def _start_keeper(self, directory: Path) -> int:
        # A job must not mistake itself for a part of Ray, nor see only the devices Ray chose.
        environment = {
            name: value
            for name, value in inherited(os.environ).items()
            if not name.startswith("CUDA_VISIBLE")
        }
        environment[RAYLET_PID_VARIABLE] = os.environ.get("RAY_RAYLET_PID", str(os.getppid()))
        return start_keeper(directory, "fairlead.engines.ray.keeper", environment)


@dataclass
class NodeAgent:
    """Supervises all schedulers' leases on this node, by the schedulers' homes."""

    _schedulers: dict[str, SchedulerAgent] = field(default_factory=dict)
    _last_call_at: float = field(default_factory=time.monotonic)
    _idle: "asyncio.Task[None] | None" = None

    async def reconcile(self, home: str, wanted: Mapping[int, float | None], private: bool) -> int:
        """Recover a scheduler's leases; see ``SchedulerAgent.reconcile``."""
        return await self._scheduler_agent(home).reconcile(wanted, private)

    async def node_files(self, home: str, method: str, *arguments: object) -> object:
        """Call a method of a scheduler's ``NodeFiles`` on this node.

        Returns the exceptions that a job's files cause: Ray would wrap raised ones.
        """
        call = getattr(self._scheduler_agent(home).files, method)
        try:
            return await asyncio.to_thread(call, *arguments)
        except JOB_FILE_ERRORS as error:
            return error

    async def launch(self, home: str, order: LaunchOrder) -> None:
        """Start the keeper of a part, once."""
        await self._scheduler_agent(home).launch(order)

    async def stop(self, home: str, lease: int, grace_s: float, why: str) -> None:
        """Ask a keeper to stop its members."""
        await self._scheduler_agent(home).request_stop(lease, grace_s, why)

    async def kill(self, home: str, lease: int) -> None:
        """Kill a keeper that does not stop."""
        await self._scheduler_agent(home).kill(lease)

    async def forget(self, home: str, leases: Collection[int]) -> None:
        """Remove the directories of leases whose ends are persisted."""
        await self._scheduler_agent(home).forget(leases)

    async def reports_after(self, home: str, number: int, wait_s: float) -> AgentReports:
        """Return a scheduler's new reports; see ``SchedulerAgent.reports_after``."""
        return await self._scheduler_agent(home).reports_after(number, wait_s)

    async def port(self, home: str, lease: int) -> int:
        """Return a free port of this node for the rendezvous of a lease's gang; hold it."""
        return self._scheduler_agent(home).hold_port(lease)

    def _scheduler_agent(self, home: str) -> SchedulerAgent:
        self._last_call_at = time.monotonic()
        if self._idle is None:
            self._idle = asyncio.create_task(self._exit_when_idle())
        agent = self._schedulers.get(home)
        if agent is None:
            agent = self._schedulers[home] = SchedulerAgent(Path(home))
        return agent

    async def _exit_when_idle(self) -> None:
        while True:
            await asyncio.sleep(_IDLE_S / 10)
            busy = [agent for agent in self._schedulers.values() if await agent.running()]
            if not busy and time.monotonic() - self._last_call_at > _IDLE_S:
                os._exit(0)
