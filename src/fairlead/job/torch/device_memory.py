"""Device memory of a process that gives up its device and stays: moved to host memory in place."""

import gc
from collections.abc import Iterable, Iterator
from itertools import compress
from typing import Any

import torch

from fairlead.job.torch.host_state import HostState


def find_tensors() -> list[Any] | None:
    """Return the tensors of this process that are on a GPU, with their gradients.

    Returns None if they cannot move: CUDA graphs keep addresses.
    """
    if not torch.cuda.is_initialized():
        return []
    tensors = []
    for one in instances_of(torch.Tensor, torch.cuda.CUDAGraph):
        if isinstance(one, torch.cuda.CUDAGraph):
            return None
        if one.is_cuda:
            tensors.append(one)
            if one.is_leaf and one.grad is not None:
                tensors.append(one.grad)
    return tensors


def host_gib_needed(host: HostState) -> float:
    """Return the host memory that a release will take beyond what ``host`` holds."""
    if not torch.cuda.is_initialized():
        return 0.0
    return float(max(torch.cuda.memory_allocated() - host.held_nbytes, 0)) / 2**30


def bytes_of(states: Any) -> int:
    """Return the bytes of the tensors of states, shared memory once."""
    return sum(int(storage.nbytes()) for storage in _storages(_tensors_in(states)))


def release(states: Any, others: Iterable[Any], host: HostState) -> None:
    """Move the tensors of states, which ``host`` has just copied, and others to host memory.

    Gradients are among the others: no state holds them, and a step may add to them.
    """
    host.release(_storages([*_tensors_in(states), *others]), copied=True)


def _storages(tensors: Iterable[Any]) -> list[Any]:
    """Return the storages of tensors, each once."""
    storages: dict[int, Any] = {}
    for tensor in tensors:
        if tensor.layout == torch.strided and tensor.device.type in ("cpu", "cuda"):
            storage = tensor.untyped_storage()
            storages.setdefault(storage._cdata, storage)
    return list(storages.values())


def _tensors_in(value: Any) -> Iterator[Any]:
    """Yield the tensors of a state."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for entry in value.values():
            yield from _tensors_in(entry)
    elif isinstance(value, list | tuple | set | frozenset):
        for entry in value:
            yield from _tensors_in(entry)


def instances_of(*kinds: type) -> Iterator[Any]:
    """Yield the objects of these classes and their subclasses.

    A process has hundreds of thousands of objects, and the device is idle meanwhile: no Python
    code runs for each.
    """
    wanted = {each for base in kinds for each in _with_subclasses(base)}
    objects = gc.get_objects()
    return compress(objects, map(wanted.__contains__, map(type, objects)))


def _with_subclasses(kind: type) -> Iterator[type]:
    yield kind
    subclasses: list[type] = type.__subclasses__(kind)
    for subclass in subclasses:
        yield from _with_subclasses(subclass)
