"""What a live scheduler decides by, written down: events are read by the rules of their time."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fairlead.core import Scheduler
from fairlead.mechanisms.base import Mechanism
from fairlead.model.errors import FairleadError, UsageError
from fairlead.model.speeds.table import SpeedTable
from fairlead.store import Put, Store


@dataclass(frozen=True, kw_only=True)
class Rules:
    """A mechanism, the speeds it believes, and how long before a round's end it plans."""

    beliefs: SpeedTable
    mechanism: Mechanism[Any]
    plan_lead_s: float
    text: str
    """all of it in a form from which it can be made again"""

    @cached_property
    def name(self) -> str:
        """A short name for the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def keep(self, store: Store, token: int) -> None:
        """Write the text down, if it is not there."""
        if self.name not in store.documents("rules"):
            store.append(token, 0, [], [Put("rules", self.name, self.text)])


@dataclass
class Found:
    """The last state that was saved, and the name of the rules that events after it go by."""

    seq: int = 0
    """number of the last event that it includes"""
    state: dict[str, Any] | None = None
    rules: str | None = None
    """None: nothing was saved yet, or by a version that did not note its rules"""

    @classmethod
    def read(cls, store: Store) -> "Found":
        """Return what a store has."""
        found = store.load_state()
        if found is None:
            return cls()
        seq, body = found
        state = json.loads(body)
        return cls(seq, state, state.get("rules"))


def config_for_state(
    written: str | None, now: Rules, store: Store, remake: Callable[[str], Rules]
) -> Rules:
    """Return the rules under which a state was saved, by their name; those of now if it has none.

    What was logged after it must be read under these: what a scheduler does about an event
    depends on them.
    """
    if written is None or written == now.name:
        return now
    try:
        return remake(store.documents("rules")[written])
    except FairleadError as error:
        raise UsageError(
            "the data were written under rules that are needed once more to read them, and cannot"
            f" be made any more: {error}"
        ) from None


def go_by(scheduler: Scheduler[Any], rules: Rules) -> None:
    """Let a scheduler go on under other rules than before."""
    try:
        scheduler.go_by(rules.beliefs, rules.mechanism, rules.plan_lead_s)
    except FairleadError as error:
        raise UsageError(
            f"with these settings a job that has not ended could not: {error}. Start the server"
            " as before and cancel it, or keep its policy and speeds"
        ) from None
