"""The store's promises, kept in memory: for simulations that must be fast and fail at will."""

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

from fairlead.store import Audit, Change, FencedError, Put, Record, Remove


class Memory:
    """What lasts when servers come and go."""

    def __init__(self) -> None:
        self.events: dict[int, str] = {}
        self.state: tuple[int, str] | None = None
        self.documents: dict[tuple[str, str], str] = {}
        self.audit: list[Audit] = []
        self.token = 0
        self.holder: MemoryStore | None = None


class MemoryStore:
    """Behaves as ``Store`` does, over a memory that several of them may share."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def acquire(self, owner: str, *, wait_s: float = 0.0) -> int | None:
        """Return a new fencing token once no other scheduler lives; None if one does."""
        del owner, wait_s
        memory = self._memory
        if memory.holder is not None and memory.holder is not self:
            return None
        memory.holder = self
        memory.token += 1
        return memory.token

    def append(
        self, token: int, first: int, bodies: Sequence[str], changes: Sequence[Change] = ()
    ) -> None:
        """Write events from number ``first`` on, and the changes that go with them, or nothing."""
        self._check(token)
        memory = self._memory
        numbers = range(first, first + len(bodies))
        if any(number in memory.events for number in numbers):
            raise KeyError(f"there is an event {first} or a later one")
        memory.events.update(zip(numbers, bodies, strict=True))
        for change in changes:
            match change:
                case Put(kind, id_, body):
                    memory.documents[kind, id_] = body
                case Remove(kind, id_):
                    memory.documents.pop((kind, id_), None)
                case Audit():
                    memory.audit.append(copy(change))

    def save_state(self, token: int, seq: int, body: str) -> None:
        """Keep the state after event ``seq``; earlier states and the events before it may go."""
        self._check(token)
        memory = self._memory
        memory.state = seq, body
        memory.events = {number: event for number, event in memory.events.items() if number > seq}

    def load_state(self) -> tuple[int, str] | None:
        """Return the number of the last event that the newest state includes, and the state."""
        return self._memory.state

    def load_events(self, after: int) -> Iterator[Record]:
        """Yield the events after a number, in order."""
        for number, body in sorted(self._memory.events.items()):
            if number > after:
                yield Record(number, body)

    def documents(self, kind: str) -> dict[str, str]:
        """Return all documents of a kind by id."""
        found = self._memory.documents.items()
        return {id_: body for (of, id_), body in found if of == kind}

    def audit_trail(self, *, before: int | None = None, limit: int = 100) -> list[dict[str, Any]]:
        """Return the newest lines of the audit trail first."""
        lines = [
            {"seq": seq, **{name: getattr(line, name) for name in line.__slots__}}
            for seq, line in enumerate(self._memory.audit, 1)
        ]
        return [line for line in reversed(lines) if before is None or line["seq"] < before][:limit]

    def close(self) -> None:
        """Give the lock back."""
        if self._memory.holder is self:
            self._memory.holder = None

    def _check(self, token: int) -> None:
        if token != self._memory.token:
            raise FencedError(
                f"a scheduler with token {self._memory.token} has taken over from {token}"
            )
