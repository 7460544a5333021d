"""State in host memory: copied from a device at the speed of the bus, and back in place.

A checkpoint copies the state here and trains on while the copy is written. A process that gives
up its device releases the device's memory in place: parameters, optimizer state and all views of
them stay valid objects, and ``restore`` fills them again.
"""

import weakref
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch

from fairlead.block_file import map_memory

_ALIGNMENT = 64
_MARGIN = 1 << 20
"""bytes for the alignment of many storages"""


class HostState:
    """Host memory for a state's storages: pinned where they are on a CUDA device.

    The memory is allocated once and used again: to allocate it takes longer than to fill it.
    """

    def __init__(self) -> None:
        self._memory = _reserved.pop() if _reserved else _Memory(0, pinned=False)
        """holds the copies of ``copy_out``"""
        self._rest = _Memory(0, pinned=False)
        """holds the other released storages"""
        self._copies: dict[int, Any] = {}
        """identity of a storage → its bytes, from the last ``copy_out``"""
        self._released: list[tuple[Any, Any]] = []
        """(storage on the device, its bytes in host memory)"""

    @property
    def nbytes(self) -> int:
        """Bytes of host memory held."""
        return self._memory.nbytes + self._rest.nbytes

    @property
    def is_released(self) -> bool:
        """Whether the state is in host memory only."""
        return bool(self._released)

    def copy_out(self, storages: Sequence[Any]) -> list[memoryview]:
        """Return the bytes of each storage, valid until the next call."""
        self._memory, self._copies = _copy(storages, self._memory)
        return [_bytes_of(copy) for copy in self._copies.values()]

    def release(self, storages: Sequence[Any], *, copied: bool = False) -> None:
        """Move storages to host memory and free the device's.

        ``copied``: no tensor has changed since the last ``copy_out``, whose copies serve and stay
        valid. Storages that share their memory with NumPy stay: they are in host memory.
        """
        if self._released:
            raise RuntimeError("the state is in host memory already: restore it first")
        storages = [storage for storage in storages if storage.resizable()]
        if not copied:
            self.copy_out(storages)
        others = [storage for storage in storages if storage._cdata not in self._copies]
        self._rest, other_copies = _copy(others, self._rest)
        copy_of, self._copies = {**self._copies, **other_copies}, {}
        self._released = [(storage, copy_of[storage._cdata]) for storage in storages]
        for storage in storages:
            storage.resize_(0)
        if any(storage.device.type == "cuda" for storage in storages):
            torch.cuda.empty_cache()

    def restore(self) -> None:
        """Move the released storages back to their devices, in place."""
        for storage, copy in self._released:
            storage.resize_(copy.numel())
            _as_bytes(storage).copy_(copy, non_blocking=True)
        _synchronize([storage for storage, _ in self._released])
        self._released = []


class _Memory:
    """A block of host memory, locked for the device's copy engine if ``pinned``."""

    def __init__(self, nbytes: int, *, pinned: bool) -> None:
        self.nbytes, self.pinned = nbytes, False
        # PyTorch's own pinned memory comes in powers of two: up to twice the state.
        self.content = (
            torch.frombuffer(map_memory(nbytes), dtype=torch.uint8)
            if nbytes
            else torch.empty(0, dtype=torch.uint8)
        )
        address = self.content.data_ptr()
        if pinned and nbytes:
            self.pinned = int(torch.cuda.cudart().cudaHostRegister(address, nbytes, 0)) == 0
        # The driver refuses to lock an address again that was freed before it was unlocked.
        self._unlock = weakref.finalize(self, _unlock, address if self.pinned else None)
        self._unlock.atexit = False

    def close(self) -> None:
        """Unlock the memory."""
        self._unlock()


_reserved: list[_Memory] = []
"""memory of the next ``HostState``"""


def reserve(nbytes: int) -> None:
    """Lock memory for the storages of a state of this size, before there is a state to copy."""
    _reserved[:] = [_Memory(nbytes + _MARGIN, pinned=True)]


def _copy(storages: Sequence[Any], memory: _Memory) -> tuple[_Memory, dict[int, Any]]:
    """Copy storages to host memory, or to a larger one; return that, and identity → bytes."""
    sizes = [storage.nbytes() for storage in storages]
    steps = (-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)
    *starts, total = accumulate(steps, initial=0)
    pinned = any(storage.device.type == "cuda" for storage in storages)
    if total > memory.nbytes or (pinned and not memory.pinned):
        memory.close()
        memory = _Memory(total, pinned=pinned)
    copies = [
        memory.content[start : start + size] for start, size in zip(starts, sizes, strict=True)
    ]
    for storage, copy in zip(storages, copies, strict=True):
        copy.copy_(_as_bytes(storage), non_blocking=True)
    _synchronize(storages)
    identities = (storage._cdata for storage in storages)
    return memory, dict(zip(identities, copies, strict=True))


def _unlock(address: int | None) -> None:
    if address is not None:
        torch.cuda.cudart().cudaHostUnregister(address)


def _as_bytes(storage: Any) -> Any:
    """Return a tensor of the bytes of a storage, on its device."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _bytes_of(tensor: Any) -> memoryview:
    return memoryview(tensor.numpy()) if tensor.numel() else memoryview(b"")


def _synchronize(storages: Sequence[Any]) -> None:
    for device in {storage.device for storage in storages if storage.device.type == "cuda"}:
        torch.cuda.synchronize(device)
