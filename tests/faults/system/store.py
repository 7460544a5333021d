"""In-memory store with the semantics of ``Store``, for fast simulations."""

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

from fairlead.store import Audit, Change, FencedError, LoggedEvent, Put, Remove


class StoredData:
    """Data that survives server restarts."""

    def __init__(self) -> None:
        self.events: dict[int, str] = {}
        self.state: tuple[int, str] | None = None
        self.documents: dict[tuple[str, str], str] = {}
        self.audit: list[Audit] = []
        self.token = 0
        self.holder: MemoryStore | None = None


class MemoryStore:
    """Behaves as ``Store`` does, on data that several instances may share."""

    def __init__(self, data: StoredData) -> None:
        self._data = data

    def acquire(self, owner: str, *, wait_s: float = 0.0) -> int | None:
        """Return a new fencing token, None while another scheduler holds the lock."""
        del owner, wait_s
        data = self._data
        if data.holder is not None and data.holder is not self:
            return None
        data.holder = self
        data.token += 1
        return data.token

    def append(
        self, token: int, first: int, bodies: Sequence[str], changes: Sequence[Change] = ()
    ) -> None:
        """Write events from number ``first`` on with their changes, all or nothing."""
        self._check(token)
        data = self._data
        numbers = range(first, first + len(bodies))
        if any(number in data.events for number in numbers):
            raise KeyError(f"event {first} or a later one exists")
        data.events.update(zip(numbers, bodies, strict=True))
        self._apply(changes)

    def _apply(self, changes: Sequence[Change]) -> None:
        data = self._data
        for change in changes:
            match change:
                case Put(kind, id_, body):
                    data.documents[kind, id_] = body
                case Remove(kind, id_):
                    data.documents.pop((kind, id_), None)
                case Audit():
                    data.audit.append(copy(change))

    def save_state(self, token: int, seq: int, body: str, changes: Sequence[Change] = ()) -> None:
        """Save the state after event ``seq``, drop earlier ones, and apply changes."""
        self._check(token)
        data = self._data
        data.state = seq, body
        data.events = {number: event for number, event in data.events.items() if number > seq}
        self._apply(changes)

    def load_state(self) -> tuple[int, str] | None:
        """Return the newest state with the number of the last event that it includes."""
        return self._data.state

    def load_events(self, after: int) -> Iterator[LoggedEvent]:
        """Yield the events after a number, in order."""
        for number, body in sorted(self._data.events.items()):
            if number > after:
                yield LoggedEvent(number, body)

    def documents(self, kind: str) -> dict[str, str]:
        """Return all documents of a kind by id."""
        documents = self._data.documents.items()
        return {id_: body for (of, id_), body in documents if of == kind}

    def document(self, kind: str, id_: str) -> str | None:
        """Return one document; None if there is none."""
        return self._data.documents.get((kind, id_))

    def audit_trail(self, *, before: int | None = None, limit: int = 100) -> list[dict[str, Any]]:
        """Return the newest lines of the audit trail first."""
        lines = [
            {"seq": seq, **{name: getattr(line, name) for name in line.__slots__}}
            for seq, line in enumerate(self._data.audit, 1)
        ]
        return [line for line in reversed(lines) if before is None or line["seq"] < before][:limit]

    def close(self) -> None:
        """Release the lock."""
        if self._data.holder is self:
            self._data.holder = None

    def _check(self, token: int) -> None:
        if token != self._data.token:
            raise FencedError(
                f"a scheduler with token {self._data.token} has taken over from {token}"
            )
