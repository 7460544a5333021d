"""State in host memory: copied from a device at the speed of the bus, and back in place.

A checkpoint copies the state here and trains on while the copy is written. A process that gives
up its device releases the device's memory in place: parameters, optimizer state and all views of
them stay valid objects, and ``restore`` fills them again.
"""

import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from typing import Any

import torch

from fairlead import block_file

_ALIGNMENT = 64
PIECE = 16 << 20
"""bytes that are locked at once, so that training continues; no transfer crosses two"""
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

    @property
    def held_nbytes(self) -> int:
        """Bytes of host memory that have been taken."""
        return self._memory.held_nbytes + self._rest.held_nbytes

    def lacking(self, nbytes: int, other_nbytes: int = 0) -> int:
        """Return the bytes of host memory that ``take_ahead`` would take for these sizes."""
        missing = nbytes - self._memory.held_nbytes, other_nbytes - self._rest.held_nbytes
        return sum(max(each, 0) for each in missing)

    def take_ahead(self, nbytes: int, other_nbytes: int = 0, *, pinned: bool) -> Iterator[None]:
        """Take the memory for a state of this size piece by piece, before the state is copied.

        A release takes ``other_nbytes`` more, above all for gradients.
        """
        self._copies = {}  # they would keep memory that is replaced
        self._memory = self._memory.enlarged(nbytes, pinned=pinned)
        yield from self._memory.take()
        self._rest = self._rest.enlarged(other_nbytes, pinned=pinned)
        yield from self._rest.take()

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
            _transfer(copy, target=_as_bytes(storage), source=copy)
        _synchronize([storage for storage, _ in self._released])
        self._released = []


class _Memory:
    """A block of host memory, locked for the device's copy engine if ``pinned``.

    It is faulted in and locked piece by piece.
    """

    def __init__(self, nbytes: int, *, pinned: bool, piece: int = PIECE) -> None:
        self.nbytes, self.pinned, self._piece = nbytes, pinned, piece
        # PyTorch's own pinned memory comes in powers of two: up to twice the state.
        self._map = block_file.map_memory(nbytes) if nbytes else None
        self.content = (
            torch.empty(0, dtype=torch.uint8)
            if self._map is None
            else torch.frombuffer(self._map, dtype=torch.uint8)
        )
        self._taken = 0
        locked: list[int] = []
        self._locked = locked
        """addresses of the locked pieces"""
        # The driver refuses to lock an address again that was freed before it was unlocked.
        self._unlock = weakref.finalize(self, _unlock, locked)
        self._unlock.atexit = False

    @property
    def held_nbytes(self) -> int:
        """Bytes that have been taken: locked memory is, piece by piece."""
        return self._taken if self.pinned else self.nbytes

    def enlarged(self, nbytes: int, *, pinned: bool) -> "_Memory":
        """Return this memory if the bytes fit, else another one in its place."""
        if nbytes <= self.nbytes and (self.pinned or not pinned):
            return self
        self.close()
        return _Memory(nbytes + _MARGIN, pinned=pinned)

    def take(self) -> Iterator[None]:
        """Fault in and lock the pieces that are not yet; OSError if there is no memory."""
        while self._map is not None and self._taken < self.nbytes:
            begin, end = self._taken, min(self._taken + self._piece, self.nbytes)
            block_file.populate(self._map, begin, end)
            address = self.content.data_ptr() + begin
            if self.pinned and _lock(address, end - begin):
                self._locked.append(address)
            self._taken = end
            yield

    def take_all(self) -> None:
        """Fault in and lock all pieces; those that cannot be locked are copied more slowly."""
        with suppress(OSError):
            deque(self.take(), maxlen=0)

    def close(self) -> None:
        """Unlock the memory."""
        self._unlock()


_reserved: list[_Memory] = []
"""memory of the next ``HostState``"""


def reserve(nbytes: int) -> None:
    """Lock memory for the storages of a state of this size, before there is a state to copy."""
    memory = _Memory(nbytes + _MARGIN, pinned=True)
    memory.take_all()
    _reserved[:] = [memory]


def reserve_for_read(nbytes: int) -> None:
    """Lock memory that the next checkpoint is read into, and copied to the device from."""
    # One piece: objects copy their own tensors, of any size.
    memory = _Memory(nbytes, pinned=True, piece=nbytes)
    memory.take_all()
    content = memory.content.numpy()
    weakref.finalize(content, memory.close).atexit = False
    block_file.reserve_memory(memoryview(content))


def _copy(storages: Sequence[Any], memory: _Memory) -> tuple[_Memory, dict[int, Any]]:
    """Copy storages to host memory, or to a larger one; return that, and identity → bytes."""
    sizes = [storage.nbytes() for storage in storages]
    steps = (-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)
    *starts, total = accumulate(steps, initial=0)
    pinned = any(storage.device.type == "cuda" for storage in storages)
    memory = memory.enlarged(total, pinned=pinned)
    if pinned:
        memory.take_all()
    copies = [
        memory.content[start : start + size] for start, size in zip(starts, sizes, strict=True)
    ]
    for storage, copy in zip(storages, copies, strict=True):
        _transfer(copy, target=copy, source=_as_bytes(storage))
    _synchronize(storages)
    identities = (storage._cdata for storage in storages)
    return memory, dict(zip(identities, copies, strict=True))


def _transfer(in_host: Any, *, target: Any, source: Any) -> None:
    """Copy bytes between a device and host memory, of which ``in_host`` is the part concerned."""
    offset, size = in_host.storage_offset(), in_host.numel()
    first_end = min(PIECE - offset % PIECE, size)
    for begin, end in pairwise([0, *range(first_end, size, PIECE), size]):
        target[begin:end].copy_(source[begin:end], non_blocking=True)


def _lock(address: int, nbytes: int) -> bool:
    return int(torch.cuda.cudart().cudaHostRegister(address, nbytes, 0)) == 0


def _unlock(addresses: list[int]) -> None:
    while addresses:
        torch.cuda.cudart().cudaHostUnregister(addresses.pop())


def _as_bytes(storage: Any) -> Any:
    """Return a tensor of the bytes of a storage, on its device."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _bytes_of(tensor: Any) -> memoryview:
    return memoryview(tensor.numpy()) if tensor.numel() else memoryview(b"")


def _synchronize(storages: Sequence[Any]) -> None:
    for device in {storage.device for storage in storages if storage.device.type == "cuda"}:
        torch.cuda.synchronize(device)
