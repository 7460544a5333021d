"""The local engine: gangs as process groups on this machine's devices, real or emulated."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fairlead import failpoints
from fairlead.engines.base import Ended, Order, Progressed, Report, Started
from fairlead.engines.keeper import lease_dir
from fairlead.engines.keeper.orphans import orphans_of
from fairlead.engines.shared.recovery import lost_before_start
from fairlead.job import checkpoint
from fairlead.model.cluster import Cluster

_POLL_S = 1.0
_START_POLL_S = 0.05


class LocalEngine:
    """Starts a keeper for each lease and hears of its end, also of those it did not start."""

    def __init__(self, data: Path, cluster: Cluster, visible: tuple[str, ...] = ()) -> None:
        """Run on this machine's cluster of one node, whose devices CUDA calls ``visible``."""
        self._root = data / "leases"
        self._cluster = cluster
        self._visible = visible
        self._reports: asyncio.Queue[Report] = asyncio.Queue()
        self._pidfds: dict[int, int] = {}
        """lease → pidfd of its keeper"""
        self._stops_requested: set[int] = set()
        """leases told to stop before their keepers were found"""
        self._progress: dict[int, float] = {}
        self._polling: asyncio.Task[None] | None = None
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)

    async def inventory(self) -> Cluster:
        """Return this machine as the cluster's nodes."""
        return self._cluster

    async def launch(self, order: Order) -> None:
        """Start the keeper of a lease, once."""
        directory = self._directory(order.lease)
        if (directory / "order.json").exists():
            if order.lease not in self._pidfds:
                self._watch(order.lease)
            return
        if self._visible:
            names = tuple(self._visible[number] for _, number in order.devices)
            order = replace(order, visible=names)
        failpoints.point("server.launch.before")
        lease_dir.write_order(directory, order)
        failpoints.point("server.launch.ordered")
        keeper = self._start_keeper(directory)
        failpoints.point("server.launch.spawned")
        try:
            self._follow(order.lease, keeper, own=True)
        except OSError:  # no descriptor is left: what cannot be watched must not run
            os.kill(keeper, signal.SIGKILL)
            os.waitpid(keeper, 0)
            raise
        self._poll_progress_of(order)
        self._reports.put_nowait(Started(order.lease))

    async def stop(self, lease: int) -> None:
        """Tell the keeper to stop its processes; it kills them after the grace of its order."""
        found = self._pidfds.get(lease)
        if found is None:
            self._stops_requested.add(lease)
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(found, signal.SIGTERM)
        failpoints.point("server.stop.told")

    async def running(self) -> frozenset[int]:
        """Return the leases whose keepers live."""
        return frozenset(self._pidfds)

    async def adopt(self, leases: Collection[int]) -> None:
        """Keep these leases, stop every other keeper on this machine, report who has ended."""
        wanted = set(leases)
        for directory in sorted(self._root.iterdir()):
            lease = int(directory.name)
            if lease in wanted:
                wanted.discard(lease)
                if lease not in self._pidfds:
                    self._watch(lease)
            else:
                self._stop_stranger(directory)
        for lease in wanted:  # ordered and logged, but the crash came before its directory
            self._reports.put_nowait(lost_before_start(lease))

    async def forget(self, leases: Collection[int]) -> None:
        """Remove the directories of leases that have ended; those of living keepers stay."""
        for lease in leases:
            self._stops_requested.discard(lease)
            lease_dir.remove(self._directory(lease))

    def reports(self) -> AsyncIterator[Report]:
        """Yield what happens to leases."""
        return self._each_report()

    async def close(self) -> None:
        """Stop watching; keepers go on."""
        loop = asyncio.get_running_loop()
        for watched in self._pidfds.values():
            loop.remove_reader(watched)
            os.close(watched)
        self._pidfds.clear()
        if self._polling:
            self._polling.cancel()

    async def _each_report(self) -> AsyncIterator[Report]:
        while True:
            yield await self._reports.get()

    def _directory(self, lease: int) -> Path:
        return self._root / str(lease)

    def _start_keeper(self, directory: Path) -> int:
        return start_keeper(directory, "fairlead.engines.keeper.keeper", os.environ)

    def _watch(self, lease: int) -> None:
        """Follow a keeper that was started before, or report how it ended."""
        directory = self._directory(lease)
        members = lease_dir.read_json(directory / "members.json")
        if members is not None and lease_dir.is_alive(directory):
            with suppress(ProcessLookupError):
                self._follow(lease, int(members["keeper"]), own=False)
                self._poll_progress_of(lease_dir.read_order(directory))
                return
        self._report_end(lease)

    def _follow(self, lease: int, pid: int, *, own: bool) -> None:
        watched = os.pidfd_open(pid)
        self._pidfds[lease] = watched
        if lease in self._stops_requested:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(watched, signal.SIGTERM)

        def gone() -> None:
            asyncio.get_running_loop().remove_reader(watched)
            os.close(watched)
            self._pidfds.pop(lease, None)
            self._progress.pop(lease, None)
            if own:
                os.waitpid(pid, 0)
            self._report_end(lease)

        asyncio.get_running_loop().add_reader(watched, gone)

    def _report_end(self, lease: int) -> None:
        """Report how a lease ended; after that no keeper can run it any more."""
        directory = self._directory(lease)
        try:
            held = lease_dir.hold(directory)
            if held is None:  # its keeper has just begun: look again in a moment
                asyncio.get_running_loop().call_later(_START_POLL_S, self._watch, lease)
                return
            with held:
                ended = lease_dir.read_ended(directory)
                if ended is None:
                    if _kill_orphans(directory):  # a device is free when nobody is on it
                        asyncio.get_running_loop().call_later(_START_POLL_S, self._watch, lease)
                        return
                    ended = Ended(lease, "lost", _saved(directory), "its keeper died")
                    # A keeper that the last server started may still be about to begin.
                    lease_dir.write_ended(directory, ended)
        except OSError:  # no room to say so: the lease is not over before it is said
            asyncio.get_running_loop().call_later(_POLL_S, self._watch, lease)
            return
        failpoints.point("server.end.seen")
        self._stops_requested.discard(lease)
        self._reports.put_nowait(ended)

    def _stop_stranger(self, directory: Path) -> None:
        """Stop a keeper whose lease is not ours any more, and clear away what is left of it.

        The fence keeps its job from writing meanwhile.
        """
        if lease_dir.is_alive(directory):
            members = lease_dir.read_json(directory / "members.json")
            if members is not None:
                with suppress(ProcessLookupError):
                    os.kill(int(members["keeper"]), signal.SIGTERM)
            again_s = _START_POLL_S if members is None else _POLL_S  # it may have just begun
        elif lease_dir.read_ended(directory) is None and _kill_orphans(directory):
            again_s = _START_POLL_S
        else:
            lease_dir.remove(directory)
            return
        asyncio.get_running_loop().call_later(again_s, self._stop_stranger, directory)

    def _poll_progress_of(self, order: Order) -> None:
        """From now on look how far a job without the library says it is, if it says so."""
        if order.progress_pattern is not None:
            self._progress[order.lease] = -1.0
            self._polling = self._polling or asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        """Look now and then how far jobs without the library say they are."""
        while True:
            await asyncio.sleep(_POLL_S)
            for lease, before in list(self._progress.items()):
                found = lease_dir.read_json(self._directory(lease) / "progress.json")
                if found is not None and found["steps"] != before:
                    self._progress[lease] = found["steps"]
                    self._reports.put_nowait(Progressed(lease, found["steps"]))


def start_keeper(directory: Path, module: str, environment: Mapping[str, str]) -> int:
    """Start a keeper in a session of its own; return its process number."""
    appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", module, str(directory)],
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(directory / "keeper.log"), appending, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        # A keeper that is told to stop before it listens hears of it when it does.
        setsigmask=[signal.SIGTERM],
        setsigdef=[signal.SIGCHLD],
    )


def _kill_orphans(directory: Path) -> bool:
    """Kill what a dead keeper has left, members' own children too; tell whether any is there yet.

    A member that is just dying holds its device until it is gone.
    """
    try:
        order = lease_dir.read_order(directory)
    except FileNotFoundError:
        return False
    left = orphans_of(order)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    members = lease_dir.read_json(directory / "members.json") or {"members": (), "started": ()}
    began = zip(members["members"], members["started"], strict=True)
    return bool(left) or any(at is not None and lease_dir.started(pid) == at for pid, at in began)


def _saved(directory: Path) -> float | None:
    try:
        order = lease_dir.read_order(directory)
    except FileNotFoundError:
        return None
    found = checkpoint.settled(order.checkpoint_dir)
    return None if found is None else float(found.steps)
