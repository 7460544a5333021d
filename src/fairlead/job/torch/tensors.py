"""Tensors as data: the bytes of their storages, and their types, shapes and strides in JSON.

Tensors that share a storage share its bytes, so that tied weights are stored once. Sharded
tensors are stored as this rank's part. Nothing is pickled.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fairlead.job.torch.shards import Shard, is_sharded
from fairlead.untrusted_file import UnusableFileError

PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)
_MIN_IN_PLACE = 1 << 16
"""bytes from which a part is used in place"""


def encode(value: Any, part_of: Callable[[Any], int]) -> dict[str, Any] | None:
    """Return a value of PyTorch as JSON; None for another value, and for exotic tensors.

    ``part_of`` returns the number of the binary part that holds a storage.
    """
    if is_sharded(value):
        shard = Shard.of(value)
        local = encode(shard.local, part_of)
        return {"shard": {**shard.about(), "local": local}}
    if type(value) in PLAIN_TYPES:
        if value.layout != torch.strided or value.is_quantized or value.device.type == "meta":
            return None
        tensor = value.detach().resolve_conj().resolve_neg()
        about = {
            "part": part_of(tensor.untyped_storage()),
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
            "stride": list(tensor.stride()),
            "offset": tensor.storage_offset(),
            "device": str(tensor.device),
            "parameter": type(value) is torch.nn.Parameter,
            "grad": value.requires_grad,
        }
        return {"tensor": about}
    if type(value) is torch.Size:
        return {"torch.Size": list(value)}
    if type(value) is torch.device:
        return {"torch.device": str(value)}
    if type(value) is torch.dtype:
        return {"torch.dtype": str(value).removeprefix("torch.")}
    return None


class TensorReader:
    """Builds tensors from the binary parts of a checkpoint."""

    def __init__(self, parts: Sequence[memoryview]) -> None:
        self._parts = parts
        self._storages: dict[int, Any] = {}
        """part → its bytes in memory of their own, shared by the tensors of a storage"""

    def read(self, about: dict[str, Any], *, to_copy: bool = False) -> Any:
        """Return a tensor on its device if that is here, else on the CPU.

        A caller that copies the tensor gets it on the CPU, in the part's memory where possible.
        """
        dtype = named_dtype(about["dtype"])
        content = self._in_place(about["part"], dtype) if to_copy else None
        if content is None:
            content = self._copied(about["part"])
        whole = content[: content.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
        tensor = whole.as_strided(about["shape"], about["stride"], about["offset"])
        device = torch.device(about["device"])
        if not to_copy and device.type != "cpu" and _is_here(device):
            tensor = tensor.to(device)
        if about["parameter"]:
            return torch.nn.Parameter(tensor, requires_grad=about["grad"])
        return tensor.requires_grad_(about["grad"])

    def _in_place(self, number: int, dtype: Any) -> Any | None:
        """Return a large part as a tensor of bytes in its own memory.

        None if that is read-only or not aligned, as in files of earlier versions, or small: an
        optimizer keeps its numbers, which would keep all parts alive.
        """
        part = self._parts[number]
        if part.readonly or len(part) < _MIN_IN_PLACE:
            return None
        content = torch.frombuffer(part, dtype=torch.uint8)
        return content if content.data_ptr() % dtype.itemsize == 0 else None

    def _copied(self, number: int) -> Any:
        """Return a part as a tensor of bytes, in memory that lives as long as the tensor."""
        if number not in self._storages:
            part = self._parts[number]
            storage = torch.empty(len(part), dtype=torch.uint8)
            if len(part):
                memoryview(storage.numpy())[:] = part
            self._storages[number] = storage
        return self._storages[number]


def named_dtype(name: str) -> Any:
    """Return the type with a name; UnusableFileError if there is none."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise UnusableFileError(f"the checkpoint is damaged (no type {name!r:.40} in PyTorch)")
    return dtype


def _is_here(device: Any) -> bool:
    if device.type == "cuda":
        return bool((device.index or 0) < torch.cuda.device_count())
    return False
