"""Device memory of a process that gives up its device and stays: moved to host memory in place."""

import gc
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from fairlead.job.torch.host_state import HostState


def can_release() -> bool:
    """Return whether this process's device memory can move: CUDA graphs keep addresses."""
    if not torch.cuda.is_initialized():
        return True
    return not any(issubclass(type(one), torch.cuda.CUDAGraph) for one in gc.get_objects())


def release(states: Any, host: HostState) -> None:
    """Move the tensors of states, and all others on GPUs, to host memory.

    Gradients are among the others: no state holds them, and a step may add to them.
    """
    tensors = [*_tensors_in(states)]
    if torch.cuda.is_initialized():
        tensors += _tensors_on_gpus()
    host.release(_storages(tensors))


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


def _tensors_on_gpus() -> Iterator[Any]:
    """Yield the tensors of this process that are on a GPU, with their gradients."""
    for one in gc.get_objects():
        if issubclass(type(one), torch.Tensor) and one.is_cuda:
            yield one
            if one.is_leaf and one.grad is not None:
                yield one.grad
