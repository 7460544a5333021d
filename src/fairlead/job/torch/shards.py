"""One rank's part of a sharded tensor, as FSDP makes them."""

from dataclasses import dataclass
from typing import Any

import torch

_KINDS = {"Shard": "shard", "Replicate": "replicate"}


@dataclass(frozen=True, slots=True)
class Shard:
    """This rank's part of a tensor that a gang holds together."""

    local: Any
    shape: tuple[int, ...]
    """of the whole tensor"""
    placements: tuple[tuple[str, int], ...]
    """mesh dimension → ("shard", dimension of the tensor) or ("replicate", -1)"""
    mesh: tuple[int, ...]
    """ranks along each dimension of the mesh"""
    coordinate: tuple[int, ...]
    """this rank's place in the mesh"""

    @classmethod
    def of(cls, tensor: Any) -> "Shard":
        """Return this rank's part of a DTensor."""
        placements = tuple(
            (_KINDS.get(type(place).__name__, "partial"), getattr(place, "dim", -1))
            for place in tensor.placements
        )
        if any(kind == "partial" for kind, _ in placements):
            raise TypeError("a tensor with partial sums cannot be stored: reduce it first")
        mesh = tensor.device_mesh
        coordinate = tuple(mesh.get_coordinate() or ())
        return cls(
            tensor.to_local(), tuple(tensor.shape), placements, tuple(mesh.shape), coordinate
        )

    def about(self) -> dict[str, Any]:
        """Return everything but the part itself, as JSON."""
        return {
            "shape": list(self.shape),
            "placements": [list(place) for place in self.placements],
            "mesh": list(self.mesh),
            "coordinate": list(self.coordinate),
        }

    @classmethod
    def read(cls, about: dict[str, Any], local: Any) -> "Shard":
        """Return the part that ``about`` describes."""
        places = tuple((str(kind), int(dim)) for kind, dim in about["placements"])
        return cls(
            local, tuple(about["shape"]), places, tuple(about["mesh"]), tuple(about["coordinate"])
        )

    def like(self, target: Any, key: str) -> Any:
        """Return a DTensor of this part with the mesh of a target.

        Raises ValueError, which names the key, if the gang has another size or layout.
        """
        from torch.distributed.tensor import DTensor  # noqa: PLC0415  # slow to import

        here = Shard.of(target)
        mine, its = (
            (shard.shape, shard.placements, shard.mesh, shard.coordinate) for shard in (self, here)
        )
        if mine != its:
            raise ValueError(
                f"{key}: the checkpoint holds rank {self.coordinate} of {self.mesh} for shape"
                f" {self.shape}: expected {here.coordinate} of {here.mesh} for {here.shape};"
                " a sharded model continues with the gang size that saved it"
            )
        return DTensor.from_local(
            self.local.to(target.device),
            target.device_mesh,
            target.placements,
            run_check=False,
            shape=target.shape,
            stride=target.stride(),
        )


def is_sharded(value: Any) -> bool:
    """Return whether a value is a DTensor."""
    if type(value) in (torch.Tensor, torch.nn.Parameter) or not isinstance(value, torch.Tensor):
        return False
    from torch.distributed.tensor import DTensor  # noqa: PLC0415  # slow to import

    return isinstance(value, DTensor)
