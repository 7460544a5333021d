"""A keeper whose gang grows: it starts the new members, the *newcomers*, while the others train.

A newcomer has neither a lease nor a token. It imports its libraries and waits when it attaches,
like the successor of a hand-over. Once the others have parked and the larger lease begins, it is
one of its members. If it cannot be, new processes are started. See docs/design/offload.md.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fairlead import failpoints
from fairlead.engines.base import Ended, LaunchOrder
from fairlead.engines.keeper.confinement.host_memory import used_memory_gib
from fairlead.engines.keeper.growth import files
from fairlead.engines.keeper.orphans import descendants, kill_tree
from fairlead.engines.keeper.parking.dialogue import Dialogue
from fairlead.engines.keeper.parking.early_start import (
    MAX_START_S,
    begin_with_early_output,
    open_early_log,
)
from fairlead.engines.keeper.parking.keeper import ParkingKeeper
from fairlead.engines.keeper.secrets import RedactedLog
from fairlead.job.keeper.channel import JOINS
from fairlead.job.keeper.successor import VARIABLE

_MAX_READY_S = 3600.0
"""seconds for which newcomers that have attached wait for their lease"""


class GrowingKeeper(ParkingKeeper):
    """Runs a gang, and starts the members by which it will grow."""

    def __init__(self, directory: Path, order: LaunchOrder) -> None:
        super().__init__(directory, order)
        self._growth: LaunchOrder | None = None
        """order with the newcomers, whose lease is the number of the request; None without any"""
        self._newcomers: list[subprocess.Popen[bytes]] = []
        self._newcomer_dialogues: list[Dialogue] = []
        self._newcomers_ready = False
        self._end_newcomers_at = float("inf")
        self._admitted = range(0)
        """members that were newcomers, until their first lease has begun"""

    def tick(self) -> None:
        """Follow requests to grow, and newcomers until they are ready."""
        super().tick()
        in_training = self._members and not (self._stopping or self._is_parked)
        if in_training and files.is_requested(self._home):
            growth = self._take_request()
            if growth is not None:
                self._start_newcomers(growth)
        if self._growth is not None:
            self._follow_newcomers(self._growth)

    def member_channel(self) -> tuple[Mapping[str, str], Sequence[int]]:
        """Return the variables and the descriptor of a member's connection to this keeper."""
        if self._growth is None:
            return super().member_channel()
        variables, descriptor = self._open_channel(self._newcomer_dialogues)
        return {**variables, JOINS: "1", VARIABLE: "1"}, (descriptor,)

    # -- before the larger lease ----------------------------------------------------------------

    def _take_request(self) -> LaunchOrder | None:
        """End the newcomers of an earlier request; return the order of the new one, if any."""
        self._end_newcomers(files.DROPPED)
        return files.take_request(self._home)

    def _drop_requested(self) -> None:
        """Follow a request while the gang is parked: newcomers can only end then."""
        growth = self._take_request() if files.is_requested(self._home) else None
        if growth is not None:
            files.write_state(self._home, growth.lease, files.DROPPED)

    def _start_newcomers(self, growth: LaunchOrder) -> None:
        """Start the members that an order has beyond the gang, if that can follow."""
        count = len(self._members)
        can_follow = self._can_park and all(one.resizes for one in self._dialogues)
        if not can_follow or growth.devices[:count] != self._order.devices:
            files.write_state(self._home, growth.lease, files.DROPPED)
            return
        self._growth, self._newcomers_ready = growth, False
        self._end_newcomers_at = time.monotonic() + MAX_START_S
        new = range(count, len(growth.devices))
        try:
            self._order = replace(self._order, max_processes=growth.max_processes)
            self._confinement.continue_with(growth, new)
            for index in new:
                # Without the address where the gang meets now: they are not expected there.
                self._newcomers.append(self._start_member(growth, index, {}))
                failpoints.point("keeper.growth.started")
        except (OSError, ValueError):
            self._end_newcomers(files.FAILED)
        for dialogue in self._newcomer_dialogues:
            dialogue.member_end.close()

    def _follow_newcomers(self, growth: LaunchOrder) -> None:
        """End newcomers that cannot be used; note once they are ready."""
        is_late = time.monotonic() > self._end_newcomers_at
        if is_late or not self._server_lives() or not self._newcomers_live():
            self._end_newcomers(files.FAILED)
        elif not self._newcomers_ready and all(one.is_ready for one in self._newcomer_dialogues):
            for newcomer in self._newcomers:
                _signal_tree(newcomer.pid, signal.SIGSTOP)
            sessions, limit_gib = {one.pid for one in self._newcomers}, growth.offload_gib
            gib = used_memory_gib(sessions, exact_above_gib=limit_gib)
            if gib > limit_gib:
                self._end_newcomers(files.FAILED)
                return
            self._newcomers_ready = True
            self._end_newcomers_at = time.monotonic() + _MAX_READY_S
            failpoints.point("keeper.growth.ready")
            files.write_state(self._home, growth.lease, files.READY, gib)

    def _newcomers_live(self) -> bool:
        return all(one.poll() is None for one in self._newcomers)

    def _end_newcomers(self, state: str) -> None:
        growth, self._growth = self._growth, None
        if growth is None:
            return
        newcomers, self._newcomers = self._newcomers, []
        for newcomer in newcomers:
            kill_tree(newcomer.pid)  # its children may have outlived it
        self._close_channels(self._newcomer_dialogues)
        self._newcomer_dialogues = []
        self._output.drop(len(self._members))
        files.write_state(self._home, growth.lease, state)

    def _conclude(self) -> Ended:
        if not self._is_parked:  # the gang ends, and they with it
            self._end_newcomers(files.DROPPED)
        return super()._conclude()

    def _pause_parked(self) -> None:
        super()._pause_parked()
        self._drop_requested()

    # -- the larger lease -----------------------------------------------------------------------

    def _drop_members(self) -> list[subprocess.Popen[bytes]]:
        """Kill the members that the present order has no device for; admit newcomers it has."""
        self._drop_requested()
        growth, order = self._growth, self._order
        fits = growth is not None and growth.devices == order.devices and self._newcomers_live()
        if not fits:
            self._end_newcomers(files.DROPPED)
        leaving = super()._drop_members()
        if fits:
            self._admit_newcomers()
        return leaving

    def _admit_newcomers(self) -> None:
        newcomers, self._newcomers = self._newcomers, []
        dialogues, self._newcomer_dialogues = self._newcomer_dialogues, []
        self._growth = None
        self._admitted = range(len(self._members), len(self._members) + len(newcomers))
        self._members += newcomers
        self._dialogues += dialogues
        self._confinement.continue_with(self._order, range(0))
        for newcomer in newcomers:
            _signal_tree(newcomer.pid, signal.SIGCONT)
        failpoints.point("keeper.growth.admitted")

    def _complete_gang(self, leaving: Sequence[subprocess.Popen[bytes]]) -> str:
        if self._admitted:
            count, self._admitted = len(self._admitted), range(0)
            self._output.note(f"fairlead: the gang grows by processes started before: {count}")
        return super()._complete_gang(leaving)

    def _open_log(self, index: int) -> RedactedLog:
        """Return the log of the present lease; that of a newcomer has its output from before."""
        if self._growth is not None and index >= len(self._members):
            return open_early_log(self._home, index, self._secrets.values())
        log = super()._open_log(index)
        return begin_with_early_output(log, self._home, index) if index in self._admitted else log


def _signal_tree(member: int, number: signal.Signals) -> None:
    """Send a signal to a process and its descendants."""
    for pid in (member, *descendants(member)):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
