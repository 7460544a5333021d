"""Switches of the scheduling config: at the start, and between two batches of a running server.

A switch is one transaction: a state under the new config, after the last event under the old
one. A server that dies before it continues under the old config, one that dies after it under the
new one.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from fairlead import failpoints
from fairlead.core import Scheduler
from fairlead.live.clock import Clock
from fairlead.live.config import LiveConfig
from fairlead.live.event_stream import EventStream
from fairlead.live.inputs.inbox import Inbox
from fairlead.live.journal import Journal
from fairlead.live.planning.guards import PlugInGuard
from fairlead.live.reconfiguration.decision import REMOVE_CHANGE, Decision, LiveChange
from fairlead.live.reconfiguration.packing import require_packing
from fairlead.live.rounds import RoundTimers
from fairlead.live.scheduling_config import (
    SchedulingConfig,
    apply_config,
    apply_config_at_start,
)
from fairlead.model.commands import Command
from fairlead.model.errors import FairleadError, InputError, ProtocolError
from fairlead.store import Audit, Change, StoreUnavailableError, User
from fairlead.store.audit import name_of

log = structlog.get_logger("fairlead.live")

Performers = Mapping[type, Callable[[Any], None]]
"""type of a command → function that performs it"""


class UsesConfig(Protocol):
    """A part of the driver that depends on the scheduling config."""

    def use_config(self, config: SchedulingConfig) -> None:
        """Continue under another config."""
        ...


@dataclass(frozen=True, slots=True)
class _Request:
    """A switch that an operator waits for."""

    before: SchedulingConfig
    """the config that the operator has seen"""
    config: SchedulingConfig
    user: User
    answer: "asyncio.Future[None]"

    def fail(self, error: FairleadError) -> None:
        """Pass an error to the operator."""
        if not self.answer.done():
            self.answer.set_exception(error)


class PolicySwitch:
    """Keeps the scheduling config in force, and switches to another one."""

    def __init__(
        self,
        config: LiveConfig,
        decision: Decision,
        scheduler: Scheduler[Any],
        journal: Journal,
        rounds: RoundTimers,
        guard: PlugInGuard,
        *,
        parts: Sequence[UsesConfig],
        clock: Clock,
        inbox: Inbox,
        stream: EventStream,
    ) -> None:
        self._device_chooser = config.device_chooser
        require_packing(decision.config, self._device_chooser)
        self._settings = config.start_settings
        self.config, self.change = decision.config, decision.change
        self._overruled = decision.overruled
        self._scheduler, self._journal = scheduler, journal
        self._rounds, self._guard, self._parts = rounds, guard, (guard, *parts, rounds)
        self._clock, self._inbox, self._stream = clock, inbox, stream
        self._requests: deque[_Request] = deque()

    def switch_at_start(self, before: str | None) -> None:
        """Decide under the config in force, and save a state that names it.

        ``before``: name of the config of the saved state; None if there is no state.
        """
        changes: list[Change] = [REMOVE_CHANGE] if self._overruled else []
        if before == self.config.name and not changes:
            return
        if before not in (None, self.config.name):
            apply_config_at_start(self._scheduler, self.config)
            leaving = self._scheduler.leases.leaving_count
            log.info("policy.changed", policy=self.config.policy, leaving=leaving)
        self._journal.save_state([self.config.document, *changes])

    async def request(
        self, before: SchedulingConfig, config: SchedulingConfig, user: User
    ) -> None:
        """Switch to another config, in a round that starts now; return once it is persisted.

        Raises ProtocolError unless ``before`` is in force, and InputError if a job that has not
        ended could never run; then nothing changes.
        """
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests.append(_Request(before, config, user, answer))
        self._inbox.post(lambda _: [])  # the switch follows the batch of this input
        await answer

    async def carry_out_requests(self, perform: Performers) -> None:
        """Carry out the requested switches; the driver handles no input meanwhile."""
        while self._requests:
            request = self._requests.popleft()
            try:
                commands = self._reconfigure(request)
            except FairleadError as error:  # refused: nothing has changed
                request.fail(error)
                continue
            if commands is not None:
                await self._switch(request, commands, perform)
            if not request.answer.done():
                request.answer.set_result(None)

    def _reconfigure(self, request: _Request) -> list[Command] | None:
        """Give the scheduler another config; return its commands, None if nothing changes."""
        config = request.config
        if config.name == self.config.name:
            return None
        if request.before is not self.config:
            raise ProtocolError("the policy was changed meanwhile: look at it and try again")
        require_packing(config, self._device_chooser)
        self._guard.prepare(config)
        try:
            return apply_config(self._scheduler, config)
        except InputError as error:
            problem = f"a job that has not ended could never run: {error.problem}"
            fix = "cancel the job, or keep policy and speeds"
            raise InputError(problem, fix=fix, field=error.field) from None

    async def _switch(
        self, request: _Request, commands: Sequence[Command], perform: Performers
    ) -> None:
        """Persist the config that the scheduler has, then act on it."""
        before, config = self.config, request.config
        at, by = self._clock.now(), name_of(request.user)
        self.config, self.change = config, LiveChange(config.name, self._settings, at, by)
        values = changed_settings(before, config)
        audit = Audit(at, request.user, "policy", config.policy, changes=values)
        failpoints.point("server.policy.before")
        try:
            await self._journal.switch_config(config, [self.change.document, audit])
        except StoreUnavailableError as error:
            request.fail(error)
            raise
        failpoints.point("server.policy.after")
        for part in self._parts:
            part.use_config(config)
        for command in commands:
            perform[type(command)](command)
        self._rounds.resume(self._scheduler)
        self._stream.log_and_publish("policy.changed", policy=config.policy)


def changed_settings(old: SchedulingConfig, new: SchedulingConfig) -> dict[str, Any]:
    """Return old and new values of the settings in which two configs differ."""
    before, after = _settings(old), _settings(new)
    return {
        name: {"old": before[name], "new": value}
        for name, value in after.items()
        if before[name] != value
    }


def _settings(config: SchedulingConfig) -> dict[str, Any]:
    """Return the settings of a config; a speed table as its size and a hash."""
    return {
        "policy": config.policy,
        "mechanism": config.mechanism_name,
        "round_s": config.round_s,
        "weight_scope": config.weight_scope,
        "speeds": config.speeds_label,
    }
