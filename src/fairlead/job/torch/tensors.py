"""Tensors as data: the bytes of their storages, and their types, shapes and strides in JSON.

Tensors that share a storage share its bytes, so that tied weights are stored once. Sharded
tensors are stored as this rank's part. Nothing is pickled.
"""

from collections.abc import Callable
from typing import Any

import torch

from fairlead.job.torch.shards import Shard, is_sharded
from fairlead.untrusted_file import UnusableFileError

PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)


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

    def __init__(self, parts: Any) -> None:
        self._parts = parts
        self._storages: dict[int, Any] = {}

    def read(self, about: dict[str, Any], *, to_device: bool) -> Any:
        """Return a tensor: on its device if that is here and ``to_device``, else on the CPU."""
        dtype = named_dtype(about["dtype"])
        content = self._bytes(about["part"])
        whole = content[: content.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
        tensor = whole.as_strided(about["shape"], about["stride"], about["offset"])
        device = torch.device(about["device"])
        if to_device and device.type != "cpu" and _is_here(device):
            tensor = tensor.to(device)
        if about["parameter"]:
            return torch.nn.Parameter(tensor, requires_grad=about["grad"])
        return tensor.requires_grad_(about["grad"])

    def _bytes(self, number: int) -> Any:
        """Return a part as a tensor of bytes, which can be written."""
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
