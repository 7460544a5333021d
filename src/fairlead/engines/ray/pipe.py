"""Values through a pipe between two processes of the scheduler, pickled, each after its length."""

import os
import pickle
from typing import Any

_LENGTH = 8


def send(descriptor: int, value: object) -> None:
    """Write a value, whole; OSError if nobody reads any more."""
    body = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    rest = memoryview(len(body).to_bytes(_LENGTH, "big") + body)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def receive(descriptor: int) -> Any:
    """Return the next value, None when nobody will write any more."""
    head = _read(descriptor, _LENGTH)
    body = _read(descriptor, int.from_bytes(head, "big")) if head else b""
    return pickle.loads(body) if body else None


def _read(descriptor: int, size: int) -> bytes:
    parts = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            return b""
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
