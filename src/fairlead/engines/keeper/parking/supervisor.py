"""Supervision of keepers whose processes park: hands them leases, limits their host memory."""

import asyncio
import os
import signal
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fairlead import failpoints
from fairlead.engines.base import Ended, LaunchOrder, Saved, Started
from fairlead.engines.keeper import lease_dir
from fairlead.engines.keeper.environment import inherited
from fairlead.engines.keeper.parking import exit_reasons
from fairlead.engines.keeper.parking.parked import (
    SERVER_VARIABLE,
    ParkedKeeper,
    can_resize,
    is_saving,
    may_park,
    used_gib,
    waits_for_next,
    write_next,
)
from fairlead.engines.keeper.start import WAKE_SIGNAL, start_keeper
from fairlead.engines.keeper.supervisor import KeeperSupervisor, kill_orphans
from fairlead.job import checkpoint

_POLL_S = 0.01
"""seconds between two looks at a lease that was asked to leave and may park"""
_SAVE_POLL_S = 0.01
"""seconds between two looks at a parked process that saves its steps"""
_MAX_SAVE_S = 60.0
"""seconds that a new server waits for parked processes of an earlier one to save their steps"""
_REMOVAL_RETRY_S = 1.0


class ParkingSupervisor(KeeperSupervisor):
    """Starts keepers whose processes may park, within a budget of host memory."""

    def __init__(
        self, data: Path, inherits: Collection[str] = (), *, offload_gib: float = 0.0
    ) -> None:
        """Keep parked processes that use at most ``offload_gib`` of host memory together."""
        super().__init__(data, inherits)
        self._offload_gib = offload_gib
        self._orders: dict[int, LaunchOrder] = {}
        """open leases whose processes may park → order"""
        self._pids: dict[int, int] = {}
        """these leases → keeper"""
        self._leaving: set[int] = set()
        """these leases that were asked to leave"""
        self._parked: dict[str, ParkedKeeper] = {}
        """job → its parked process, longest parked first"""
        self._saving: dict[str, ParkedKeeper] = {}
        """job → a process, parked or about to end, that saves the steps of the job's last lease"""
        self._restart_reasons: dict[str, str] = {}
        """job → reason for which its parked process has ended, until its next lease"""
        self._unforgotten: set[int] = set()
        """first leases of parked processes whose ends may not be persisted yet"""

    # -- leases ---------------------------------------------------------------------------------

    async def launch(self, order: LaunchOrder) -> None:
        """Hand the lease to the job's parked process, or start a keeper for it."""
        if not self._offload_gib or (self._directory(order.lease) / "order.json").exists():
            await super().launch(order)
            return
        while order.job in self._saving:  # the next lease continues from these steps
            await asyncio.sleep(_POLL_S)
        if may_park(order):
            order = replace(order, offload_gib=self._offload_gib)
        waiting = await self._take_process(order)
        reason = self._restart_reasons.pop(order.job, "")
        if waiting is not None:
            self._hand_over(waiting, order)
            return
        order = replace(order, restart_reason=reason)
        self._expect_parking(order)
        try:
            await super().launch(order)
        except BaseException:
            self._forget_order(order.lease)
            raise

    async def stop(self, lease: int) -> None:
        """Signal the keeper to stop its process, and watch for the process to park."""
        await super().stop(lease)
        if lease in self._orders and lease not in self._leaving:
            self._leaving.add(lease)
            self._look_for_parking(lease)

    async def adopt(self, leases: Collection[int]) -> None:
        """Let parked processes of an earlier server save their steps, then adopt leases."""
        until = time.monotonic() + _MAX_SAVE_S
        directories = lease_dir.list_leases(self._root).values()
        running = {lease_dir.home_of(self._directory(lease)) for lease in leases}
        for home in directories:
            if home not in running and waits_for_next(home):
                self._note_end(home, exit_reasons.PARKED_WITH_SERVER)
        for directory in directories:
            while is_saving(directory) and lease_dir.is_alive(directory):
                if time.monotonic() > until:
                    break
                await asyncio.sleep(_SAVE_POLL_S)
        await super().adopt(leases)

    async def forget(self, leases: Collection[int]) -> None:
        """Remove the directories of leases that have ended, once no keeper needs them."""
        for lease in leases:
            self._unforgotten.discard(lease)
            directory = self._directory(lease)
            home = lease_dir.home_of(directory)
            await super().forget([lease])
            if home != directory:
                self._remove_after_parking(directory)
                if home not in self._homes():
                    self._stop_orphan(home)

    async def close(self) -> None:
        """End parked processes; those of open leases keep running."""
        for parked in self._parked.values():
            self._end(parked)
            self._unfollow(parked)
        self._parked.clear()
        self._saving.clear()
        self._leaving.clear()
        await super().close()

    def _start_keeper(self, directory: Path) -> int:
        if not self._offload_gib:
            return super()._start_keeper(directory)
        environment = inherited(os.environ, self._inherits)
        environment[SERVER_VARIABLE] = str(os.getpid())
        return start_keeper(directory, "fairlead.engines.keeper.suspend.keeper", environment)

    def _follow(self, lease: int, pid: int, *, own: bool) -> None:
        if own and lease in self._orders:
            self._pids[lease] = pid
        super()._follow(lease, pid, own=own)

    def _report_end(self, lease: int) -> None:
        directory, is_own = self._directory(lease), lease in self._orders
        ended = lease_dir.read_ended(directory, lease)
        if ended is not None and ended.parked:  # and its keeper has ended since
            reasons = exit_reasons.PARKED_ENDED, exit_reasons.PARKED_WITH_SERVER
            self._note_end(directory, reasons[0] if is_own else reasons[1])
        self._forget_order(lease)
        super()._report_end(lease)

    def _forget_order(self, lease: int) -> None:
        self._orders.pop(lease, None)
        self._pids.pop(lease, None)

    def _note_end(self, directory: Path, reason: str) -> None:
        """Note for the next lease of a directory's job why its parked processes have ended."""
        if self._offload_gib:
            with suppress(FileNotFoundError):  # the job has damaged its order
                self._restart_reasons.setdefault(lease_dir.read_order(directory).job, reason)

    # -- parked processes -----------------------------------------------------------------------

    def parked_jobs(self) -> Mapping[str, tuple[tuple[str, int], ...]]:
        """Return job → (node, number on it) of the devices that its parked processes left."""
        return {job: parked.order.devices for job, parked in self._parked.items()}

    def remembered_jobs(self) -> Collection[str]:
        """Return the jobs of which something is remembered for their next leases."""
        return self._restart_reasons.keys()

    async def forget_job(self, job: str) -> None:
        """Forget a job that has ended, or was suspended."""
        self._restart_reasons.pop(job, None)

    async def end_parked(self, job: str, *, drained: bool = False) -> None:
        """End the parked process of a job, if there is one."""
        if not drained:
            self._restart_reasons.pop(job, None)
        parked = self._parked.pop(job, None)
        if parked is not None:
            if drained:
                self._restart_reasons[job] = exit_reasons.NODE_DRAINED
            self._end(parked)

    async def _take_process(self, order: LaunchOrder) -> ParkedKeeper | None:
        """Return the process of the job that can run an order, None without; end another one."""
        parked = self._parked.pop(order.job, None)
        if parked is None:
            return None
        obstacle = parked.obstacle(order) if parked.lives() else exit_reasons.PARKED_ENDED
        if obstacle:
            self._restart_reasons[order.job] = obstacle
            self._end(parked)
            return None
        return parked

    def _hand_over(self, parked: ParkedKeeper, order: LaunchOrder) -> None:
        """Order a parked process to run a lease."""
        directory = self._directory(order.lease)
        order = replace(parked.adapted(order) or order, resumes=int(parked.home.name))
        failpoints.point("server.resume.before")
        lease_dir.write_order(directory, order)
        failpoints.point("server.resume.ordered")
        write_next(parked.home, order.lease)
        failpoints.point("server.resume.named")
        self._unfollow(parked)
        self._expect_parking(order)
        self._follow(order.lease, parked.pid, own=True)
        self._poll_progress_of(order)
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfds[order.lease], WAKE_SIGNAL)
        failpoints.point("server.resume.told")
        self._reports.put_nowait(Started(order.lease))

    def _expect_parking(self, order: LaunchOrder) -> None:
        if order.offload_gib > 0:
            self._orders[order.lease] = order

    def _look_for_parking(self, lease: int) -> None:
        """Report the end of a lease once its process is parked; poll until then."""
        if lease not in self._leaving or lease not in self._pidfds:
            self._leaving.discard(lease)
            return
        ended = lease_dir.read_ended(self._directory(lease), lease)
        if ended is None or not ended.parked:
            asyncio.get_running_loop().call_later(_POLL_S, self._look_for_parking, lease)
            return
        self._leaving.discard(lease)
        self._note_parked(ended)

    def _note_parked(self, ended: Ended) -> None:
        order, pid = self._orders.pop(ended.lease), self._pids.pop(ended.lease)
        pidfd, loop = self._pidfds.pop(ended.lease), asyncio.get_running_loop()
        loop.remove_reader(pidfd)
        self._progress.pop(ended.lease, None)
        home = self._directory(ended.lease if order.resumes is None else order.resumes)
        self._unforgotten.add(ended.lease)
        gib = used_gib(home, order.offload_gib)
        parked = ParkedKeeper(
            order, home, pid, pidfd, gib, suspended=ended.suspended, resizes=can_resize(home)
        )
        self._parked[order.job] = parked
        if ended.unsaved is not None:
            self._saving[order.job] = parked
            loop.call_later(_SAVE_POLL_S, self._look_for_save, parked)
        loop.add_reader(pidfd, self._keeper_ended, parked)
        failpoints.point("server.park.seen")
        self._reports.put_nowait(ended)
        self._keep_within_budget()

    def _look_for_save(self, parked: ParkedKeeper) -> None:
        """Report the steps of a parked process once it has saved them; poll until then."""
        if self._saving.get(parked.order.job) is not parked:
            return
        if is_saving(parked.home):
            loop = asyncio.get_running_loop()
            loop.call_later(_SAVE_POLL_S, self._look_for_save, parked)
            return
        parked.gib = used_gib(parked.home, parked.gib)
        self._report_saved(parked)
        self._keep_within_budget()

    def _report_saved(self, parked: ParkedKeeper) -> None:
        """Report the committed steps of a process that saves no more, once."""
        order = parked.order
        if self._saving.get(order.job) is parked:
            failpoints.point("server.park.saved")
            del self._saving[order.job]
            steps = checkpoint.saved_steps(order.checkpoint_dir)
            self._reports.put_nowait(Saved(order.lease, order.job, steps))

    def _keep_within_budget(self) -> None:
        """End the processes that are parked for longest while all use too much memory."""
        while sum(parked.gib for parked in self._parked.values()) > self._offload_gib:
            job = next(iter(self._parked))
            self._restart_reasons[job] = exit_reasons.memory_short(self._offload_gib)
            self._end(self._parked.pop(job))

    def _end(self, parked: ParkedKeeper) -> None:
        """Signal the keeper of a parked process to end it."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(parked.pidfd, signal.SIGTERM)

    def _unfollow(self, parked: ParkedKeeper) -> None:
        asyncio.get_running_loop().remove_reader(parked.pidfd)
        os.close(parked.pidfd)

    def _keeper_ended(self, parked: ParkedKeeper) -> None:
        self._unfollow(parked)
        os.waitpid(parked.pid, 0)
        if self._parked.get(parked.order.job) is parked:  # nobody has ended it
            del self._parked[parked.order.job]
            self._restart_reasons[parked.order.job] = exit_reasons.PARKED_ENDED
        self._clean_up(parked)

    def _clean_up(self, parked: ParkedKeeper) -> None:
        """Kill the processes that a keeper has left, and remove its directory."""
        if kill_orphans(parked.home):
            asyncio.get_running_loop().call_later(_POLL_S, self._clean_up, parked)
            return
        self._report_saved(parked)
        if parked.suspended:
            self._reports.put_nowait(Saved(parked.order.lease, parked.order.job, None))
        if int(parked.home.name) not in self._unforgotten:
            lease_dir.remove(parked.home)

    def _homes(self) -> set[Path]:
        """Return the directories of living keepers whose processes park, or may."""
        parked = {one.home for one in self._parked.values()}
        first = (order.resumes for order in self._orders.values() if order.resumes is not None)
        return parked | {self._directory(lease) for lease in first}

    def _remove_after_parking(self, directory: Path) -> None:
        """Remove the directory of a lease that has ended, once its keeper has let go of it."""
        lease_dir.remove(directory)
        if directory.exists():
            loop = asyncio.get_running_loop()
            loop.call_later(_REMOVAL_RETRY_S, self._remove_after_parking, directory)
