"""Pickled, length-prefixed values over a pipe between the scheduler and its bridge to Ray."""

import os
import pickle
from typing import Any

_LENGTH = 8


def send(descriptor: int, value: object) -> None:
    """Write a whole value; raise OSError if the reader has closed the pipe."""
    body = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    rest = memoryview(len(body).to_bytes(_LENGTH, "big") + body)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def receive(descriptor: int) -> Any:
    """Return the next value, None once the writer has closed the pipe."""
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
