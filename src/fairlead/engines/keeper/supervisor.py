"""Supervision of the keepers of one machine: starts them, follows them, reports their ends."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from fairlead import failpoints
from fairlead.engines.base import Ended, LaunchOrder, Progressed, Report, Started
from fairlead.engines.keeper import lease_dir
from fairlead.engines.keeper.confinement import cgroup
from fairlead.engines.keeper.environment import inherited
from fairlead.engines.keeper.orphans import any_member_alive, find_keeper, orphans_in, orphans_of
from fairlead.engines.keeper.start import KILL_SIGNAL, start_keeper
from fairlead.job import checkpoint

_POLL_S = 1.0
_START_POLL_S = 0.05


class KeeperSupervisor:
    """Starts a keeper for each lease and reports its end, also of keepers started before it."""

    _has_servers_clock: ClassVar[bool] = True
    """it runs on the server's machine, so that it knows at which time leases ended"""

    def __init__(self, data: Path, inherits: Collection[str] = ()) -> None:
        """Supervise the keepers whose lease directories are in ``data/leases``.

        Jobs inherit the server's variables ``inherits`` besides the usual ones.
        """
        self._root = data / "leases"
        self._inherits = inherits
        self._reports: asyncio.Queue[Report] = asyncio.Queue()
        self._pidfds: dict[int, int] = {}
        """lease → pidfd of its keeper"""
        self._stops_requested: set[int] = set()
        """leases whose stop was requested before their keepers were found"""
        self._progress: dict[int, float] = {}
        self._polling: asyncio.Task[None] | None = None
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)

    async def launch(self, order: LaunchOrder) -> None:
        """Start the keeper of a lease, once."""
        directory = self._directory(order.lease)
        if (directory / "order.json").exists():
            if order.lease not in self._pidfds:
                self._recover(order.lease)
            return
        failpoints.point("server.launch.before")
        lease_dir.write_order(directory, order)
        failpoints.point("server.launch.ordered")
        keeper = self._start_keeper(directory)
        failpoints.point("server.launch.spawned")
        try:
            self._follow(order.lease, keeper, own=True)
        except OSError:  # no descriptor left: a keeper that cannot be followed must not run
            os.kill(keeper, signal.SIGKILL)
            os.waitpid(keeper, 0)
            raise
        self._poll_progress_of(order)
        self._reports.put_nowait(Started(order.lease))

    async def stop(self, lease: int) -> None:
        """Signal the keeper to stop its processes; it kills them after the grace of its order."""
        pidfd = self._pidfds.get(lease)
        if pidfd is None:
            self._stops_requested.add(lease)
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        failpoints.point("server.stop.told")

    async def kill(self, lease: int) -> None:
        """Signal the keeper to kill its processes at once."""
        pidfd = self._pidfds.get(lease)
        if pidfd is None:
            self._stops_requested.add(lease)
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, KILL_SIGNAL)

    async def running(self) -> frozenset[int]:
        """Return the leases whose keepers live."""
        return frozenset(self._pidfds)

    async def adopt(self, leases: Collection[int]) -> None:
        """Keep these leases, stop every other keeper on this machine, report ended leases."""
        wanted = set(leases)
        # A keeper whose first lease has ended may run a later one.
        homes = {lease_dir.home_of(self._directory(lease)) for lease in wanted}
        for lease, directory in lease_dir.list_leases(self._root).items():
            if lease in wanted:
                wanted.discard(lease)
                if lease not in self._pidfds:
                    self._recover(lease)
            elif directory not in homes:
                self._stop_orphan(directory)
        for lease in wanted:  # the server crashed before it wrote the directory
            self._reports.put_nowait(lease_dir.lost_before_start(lease))

    async def forget(self, leases: Collection[int]) -> None:
        """Remove the directories of leases that have ended; those of living keepers stay."""
        for lease in leases:
            self._stops_requested.discard(lease)
            lease_dir.remove(self._directory(lease))

    def reports(self) -> AsyncIterator[Report]:
        """Yield reports about leases."""
        return self._iterate_reports()

    async def close(self) -> None:
        """Stop following keepers; they keep running."""
        loop = asyncio.get_running_loop()
        for pidfd in self._pidfds.values():
            loop.remove_reader(pidfd)
            os.close(pidfd)
        self._pidfds.clear()
        if self._polling:
            self._polling.cancel()

    async def _iterate_reports(self) -> AsyncIterator[Report]:
        while True:
            yield await self._reports.get()

    def _directory(self, lease: int) -> Path:
        return self._root / str(lease)

    def _start_keeper(self, directory: Path) -> int:
        environment = inherited(os.environ, self._inherits)
        return start_keeper(directory, "fairlead.engines.keeper.keeper", environment)

    def _recover(self, lease: int) -> None:
        """Follow a keeper that was started before, or report its end."""
        directory = self._directory(lease)
        keeper = find_keeper(directory)
        if keeper is not None and lease_dir.is_alive(directory):
            with suppress(ProcessLookupError):
                self._follow(lease, keeper, own=False)
                with suppress(FileNotFoundError):  # the job has damaged it
                    self._poll_progress_of(lease_dir.read_order(directory))
                return
        self._report_end(lease)

    def _follow(self, lease: int, pid: int, *, own: bool) -> None:
        pidfd = os.pidfd_open(pid)
        self._pidfds[lease] = pidfd
        if lease in self._stops_requested:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGTERM)

        def on_exit() -> None:
            asyncio.get_running_loop().remove_reader(pidfd)
            os.close(pidfd)
            self._pidfds.pop(lease, None)
            self._progress.pop(lease, None)
            if own:
                os.waitpid(pid, 0)
            self._report_end(lease)

        asyncio.get_running_loop().add_reader(pidfd, on_exit)

    def _report_end(self, lease: int) -> None:
        """Report the end of a lease; after that no keeper can run it."""
        directory = self._directory(lease)
        try:
            lock = lease_dir.try_lock(directory)
            if lock is None:  # its keeper has just started: try again in a moment
                asyncio.get_running_loop().call_later(_START_POLL_S, self._recover, lease)
                return
            with lock:
                ended = lease_dir.read_ended(directory, lease)
                unsaved = ended is None or ended.unsaved is not None
                may_have_orphans = unsaved or lease_dir.was_parked(directory)
                if may_have_orphans and kill_orphans(directory):
                    # Their devices are not free yet.
                    asyncio.get_running_loop().call_later(_START_POLL_S, self._recover, lease)
                    return
                if ended is not None and self._has_servers_clock:  # perhaps while no server ran
                    ended = replace(ended, at=lease_dir.ended_at(directory))
                if ended is not None and unsaved:  # a process has stayed to save its steps
                    steps = _checkpointed_steps(directory)
                    ended = replace(ended, steps=steps, unsaved=None)
                if ended is None:
                    ended = Ended(lease, "lost", _checkpointed_steps(directory), "keeper died")
                    # A keeper that the last server started may begin only now: it must not run.
                    lease_dir.write_ended(directory, ended)
        except OSError:  # disk full: the lease ends once its end is persisted
            asyncio.get_running_loop().call_later(_POLL_S, self._recover, lease)
            return
        failpoints.point("server.end.seen")
        self._stops_requested.discard(lease)
        self._reports.put_nowait(ended)

    def _stop_orphan(self, directory: Path) -> None:
        """Stop a keeper whose lease is no longer open, then remove its directory.

        Meanwhile the fence keeps its job from writing.
        """
        if lease_dir.is_alive(directory):
            keeper = find_keeper(directory)
            if keeper is not None:
                with suppress(ProcessLookupError):
                    os.kill(keeper, signal.SIGTERM)
            retry_s = _START_POLL_S if keeper is None else _POLL_S  # it may have just started
        elif _may_have_orphans(directory) and kill_orphans(directory):
            retry_s = _START_POLL_S
        else:
            lease_dir.remove(directory)
            return
        asyncio.get_running_loop().call_later(retry_s, self._stop_orphan, directory)

    def _poll_progress_of(self, order: LaunchOrder) -> None:
        """Start polling the steps that a job without the library prints, if it has a pattern."""
        if order.progress_pattern is not None:
            self._progress[order.lease] = -1.0
            self._polling = self._polling or asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        """Report the steps that jobs without the library print."""
        while True:
            await asyncio.sleep(_POLL_S)
            for lease, before in list(self._progress.items()):
                steps = lease_dir.read_progress(self._directory(lease))
                if steps is not None and steps != before:
                    self._progress[lease] = steps
                    self._reports.put_nowait(Progressed(lease, steps))


def _may_have_orphans(directory: Path) -> bool:
    """Return whether a dead keeper may have left processes."""
    ended = lease_dir.read_ended(directory, int(directory.name))
    return ended is None or lease_dir.was_parked(directory)


def kill_orphans(directory: Path) -> bool:
    """Kill the processes that a dead keeper has left; return whether any still lives.

    A member that is just dying holds its device until it is gone.
    """
    home = lease_dir.home_of(directory)
    group = cgroup.load(home)
    if group is not None:
        group.kill()
        if group.processes():
            return True
        group.remove()
    try:
        left = set(orphans_of(lease_dir.read_order(directory)))
    except FileNotFoundError:  # never ordered, or the job has damaged the order
        left = orphans_in(directory)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    members = lease_dir.read_members(directory)
    return bool(left) or (members is not None and any_member_alive(home, members.started))


def _checkpointed_steps(directory: Path) -> float | None:
    try:
        return checkpoint.saved_steps(lease_dir.read_order(directory).checkpoint_dir)
    except FileNotFoundError:
        return None
