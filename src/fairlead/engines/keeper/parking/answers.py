"""A keeper that answers processes which ask whether they may stay after their lease.

All members of a gang get the same answer. Where that is to exit, the reason is in their logs and
in the end of their lease. See docs/design/offload.md.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fairlead.engines.base import Ended, LaunchOrder
from fairlead.engines.keeper.confinement.host_memory import used_memory_gib
from fairlead.engines.keeper.keeper import Keeper
from fairlead.engines.keeper.parking import exit_reasons
from fairlead.engines.keeper.parking.dialogue import Dialogue
from fairlead.engines.keeper.parking.parked import SERVER_VARIABLE, exit_reason, may_wait
from fairlead.job.keeper.channel import JOINS, VARIABLE
from fairlead.job.saving.saver import LIMIT_VARIABLE

_ANSWER_TIMEOUT_S = 10.0
"""seconds until a process that leaves must exit: its server lives and requests no stop, or other
members of its gang do not leave"""


class AnsweringKeeper(Keeper):
    """Runs processes, and tells those that must leave whether to park or to exit."""

    def __init__(self, directory: Path, order: LaunchOrder) -> None:
        super().__init__(directory, order)
        self._server = int(os.environ.get(SERVER_VARIABLE, "0"))
        self._dialogues: list[Dialogue] = []
        """members → their messages; empty if they cannot park"""
        self._asked_at: float | None = None
        """time at which the first member asked whether to park"""
        self._exit_reason = ""
        """reason for which the processes must exit, once it is noted"""
        self._is_parked = False
        self._unsaved: float | None = None
        """steps that the parked processes are saving; None once they have"""
        self._used_gib = 0.0

    def member_channel(self) -> tuple[Mapping[str, str], Sequence[int]]:
        """Return the variables and the descriptor of a member's connection to this keeper."""
        if not (self._order.offload_gib > 0 and may_wait(self._order)):
            return {}, ()
        variables, descriptor = self._open_channel(self._dialogues)
        joins = {} if self._directory == self._home else {JOINS: "1"}
        return {**variables, **joins}, (descriptor,)

    def _open_channel(self, dialogues: list[Dialogue]) -> tuple[Mapping[str, str], int]:
        """Add the messages of a new member; return the variables and the descriptor of its end."""
        dialogue = Dialogue()
        dialogues.append(dialogue)
        self._output.watch(dialogue.channel.fileno(), lambda: self._hear(dialogue))
        limit_gib = min(self._order.offload_gib, self._order.memory_gib or float("inf"))
        descriptor = dialogue.member_end.fileno()
        return {VARIABLE: str(descriptor), LIMIT_VARIABLE: str(limit_gib)}, descriptor

    def _close_channels(self, dialogues: Sequence[Dialogue]) -> None:
        """Close the connections of members that leave."""
        for dialogue in dialogues:
            if not dialogue.channel.closed:
                self._output.unwatch(dialogue.channel.fileno())
            dialogue.channel.close()

    def _start_members(self, indices: range) -> None:
        super()._start_members(indices)
        for dialogue in self._dialogues:
            dialogue.member_end.close()

    @property
    def _uses_library(self) -> bool:
        """Whether a process has attached, or is about to."""
        return any(one.uses_library for one in self._dialogues)

    @property
    def _can_park(self) -> bool:
        """Whether all processes have declared that they can."""
        return bool(self._dialogues) and all(one.can_park for one in self._dialogues)

    def _hear(self, dialogue: Dialogue) -> None:
        dialogue.hear()
        if dialogue.channel.closed:
            self._output.unwatch(dialogue.channel.fileno())
        if not self._is_parked and all(one.is_parked for one in self._dialogues):
            self._is_parked = True
            unsaved = [one.unsaved for one in self._dialogues if one.unsaved is not None]
            self._unsaved = max(unsaved, default=None)
        self._answer()

    def tick(self) -> None:
        """Answer processes that wait for an answer; kill a gang of which only some could park."""
        self._answer()
        if self._stopping and not (self._stop_reason or self._exit_reason):
            self._note_exit(exit_reason(self._order))
        some_parked = any(one.is_parked for one in self._dialogues)
        if some_parked and not self._is_parked and not self._all_live():
            self._kill_at = 0.0  # the others would wait for its part of the checkpoint

    def _answer(self) -> None:
        """Tell processes that leave whether to park: all members of a gang, or none.

        A process may learn of its preemption before this keeper does: the stop request follows,
        unless the server dies.
        """
        waiting = [one for one in self._dialogues if one.has_asked]
        if not waiting:
            return
        self._asked_at = self._asked_at or time.monotonic()
        obstacle = self._exit_reason or self._obstacle_to(waiting, self._asked_at)
        if obstacle is None:
            return
        if self._stop_reason:
            self._exit_reason = obstacle
        elif not self._exit_reason:
            self._note_exit(obstacle)
        for dialogue in waiting:
            dialogue.answer(allowed=not obstacle)

    def _obstacle_to(self, waiting: Sequence[Dialogue], since: float) -> str | None:
        """Return why members that leave must exit; empty if they may park, None to wait."""
        named = [one.obstacle for one in waiting if one.obstacle]
        if named:
            return named[0]
        if not self._all_live():
            return exit_reasons.MEMBER_ENDED
        if not self._server_lives():
            return exit_reasons.SERVER_ENDED
        if not self._stopping or len(waiting) < len(self._dialogues):
            # In time for members that exit to save.
            half_s = self._order.grace_s / 2 if self._stopping else _ANSWER_TIMEOUT_S
            if time.monotonic() < since + min(_ANSWER_TIMEOUT_S, half_s):
                return None
            return exit_reasons.MEMBERS_LATE if self._stopping else exit_reasons.NO_STOP
        if self._order.forks:
            return exit_reasons.COPIES
        limit_gib = self._order.offload_gib
        self._used_gib = self._measure_memory() + sum(one.more_gib for one in waiting)
        if self._used_gib > limit_gib:
            return exit_reasons.too_large(self._used_gib, limit_gib)
        return self._stop_reason

    def _note_exit(self, reason: str) -> None:
        """Write the reason for which the processes must exit to their logs; empty: there is none.

        The lease ends with it as well.
        """
        self._exit_reason = reason
        if reason:
            self._output.note(f"fairlead: {exit_reasons.exit_text(reason)}")

    def _ended(self, *, stopped: bool) -> Ended:
        ended = super()._ended(stopped=stopped)
        reason = self._exit_reason or exit_reason(self._order)
        if reason and ended.ending == "left" and not ended.message:
            text = exit_reasons.exit_text(reason)
            return replace(ended, message=text, switch=text)
        return ended

    def report(self, ended: Ended) -> None:
        """Persist the end of a lease, with the reasons for which processes did not stay."""
        if self._order.restart_reason:
            text = exit_reasons.exit_text(self._order.restart_reason)
            ended = replace(ended, switch="; ".join(filter(None, (text, ended.switch))))
        super().report(ended)

    def _start(self) -> None:
        super()._start()
        if self._order.restart_reason:
            text = exit_reasons.exit_text(self._order.restart_reason)
            self._output.note(f"fairlead: {text}")

    def _forward_stop(self) -> None:
        """Send the stop by the channels where processes listen: they may be behind a shell."""
        if not self._can_park or self._stop_reason:
            super()._forward_stop()
        elif self._signalled is not None and not self._signalled and not self._is_parked:
            self._signalled = {member.pid for member in self._members}
            for dialogue in self._dialogues:
                dialogue.channel.send("stop")

    def _all_live(self) -> bool:
        return all(member.poll() is None for member in self._members)

    def _measure_memory(self) -> float:
        sessions = {member.pid for member in self._members}
        return used_memory_gib(sessions, exact_above_gib=self._order.offload_gib)

    def _server_lives(self) -> bool:
        """Return whether the server lives that started this keeper: no other knows of parking."""
        return os.getppid() == self._server
