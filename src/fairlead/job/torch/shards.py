"""Parts of sharded tensors, as FSDP makes them, and the whole tensors for gangs of other sizes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    """this rank's place in the mesh; no dimensions: the part is the whole tensor"""

    @classmethod
    def whole(cls, tensor: Any) -> "Shard":
        """Return a whole tensor, for a gang of any size."""
        return cls(tensor, tuple(tensor.shape), (), (), ())

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
        """Return a DTensor of this part with the mesh of a target, or a whole plain tensor.

        Raises ValueError, which names the key, if the gang has another layout.
        """
        if not self.mesh and not is_sharded(target):
            return self.local
        here = Shard.of(target)
        if not self.mesh and self.shape == here.shape:
            return _like(target, self._part_for(target))
        mine, its = (
            (shard.shape, shard.placements, shard.mesh, shard.coordinate) for shard in (self, here)
        )
        if mine != its:
            raise ValueError(
                f"{key}: the checkpoint holds rank {self.coordinate} of {self.mesh} for shape"
                f" {self.shape}: expected {here.coordinate} of {here.mesh} for {here.shape};"
                " a sharded model continues with the mesh and the layout that saved it"
            )
        return _like(target, self.local)

    def _part_for(self, target: Any) -> Any:
        """Return this rank's part of a whole tensor, in memory of its own."""
        from torch.distributed.tensor import distribute_tensor  # noqa: PLC0415  # slow to import

        # Each rank has the whole tensor, so that nothing is sent.
        divided = distribute_tensor(
            self.local.detach().to(target.device),
            target.device_mesh,
            target.placements,
            src_data_rank=None,
        )
        return divided.to_local().clone()


def fit(value: Any, target: Any, key: str) -> Any:
    """Return a restored value in the layout of a target: parts, and whole tensors, are divided.

    Raises ValueError, which names the key, if the gang has another layout.
    """
    if isinstance(value, Shard):
        return value.like(target, key)
    is_whole = type(value) in (torch.Tensor, torch.nn.Parameter) and value.ndim
    if is_whole and is_sharded(target) and value.shape == target.shape:
        return Shard.whole(value).like(target, key)
    return value


def _like(target: Any, local: Any) -> Any:
    """Return a DTensor of this rank's part with the mesh of a target."""
    from torch.distributed.tensor import DTensor  # noqa: PLC0415  # slow to import

    return DTensor.from_local(
        local.to(target.device),
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


def has_parts(state: Any) -> bool:
    """Return whether a state contains a part of a sharded tensor."""
    return next(_paths(state), None) is not None


def join(states: Iterable[Any]) -> Any:
    """Return the state of rank 0 with whole tensors in place of the ranks' parts."""
    ranks = list(states)
    for path in list(_paths(ranks[0])):
        holders = [_follow(state, path[:-1]) for state in ranks]
        holders[0][path[-1]] = Shard.whole(_join_parts([holder[path[-1]] for holder in holders]))
    return ranks[0]


def _paths(state: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the keys that lead to each part in the dicts and lists of a state."""
    if isinstance(state, Shard):
        yield path
    elif isinstance(state, Mapping):
        for key, value in state.items():
            yield from _paths(value, (*path, key))
    elif isinstance(state, list):
        for index, value in enumerate(state):
            yield from _paths(value, (*path, index))


def _follow(state: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        state = state[key]
    return state


def _join_parts(parts: Sequence[Shard]) -> Any:
    """Return the whole tensor; ValueError if parts are missing."""
    layout, by_place = parts[0], {part.coordinate: part.local for part in parts}

    def join_from(place: tuple[int, ...]) -> Any:
        if len(place) == len(layout.mesh):
            return by_place[place]
        kind, dimension = layout.placements[len(place)]
        if kind == "replicate":
            return join_from((*place, 0))
        pieces = [join_from((*place, i)) for i in range(layout.mesh[len(place)])]
        return torch.cat(pieces, dimension)

    try:
        whole = join_from(())
    except KeyError as error:
        raise ValueError(f"the checkpoint has no part {error} of a sharded tensor") from None
    if tuple(whole.shape) != layout.shape:
        raise ValueError(f"parts of shape {tuple(whole.shape)}: expected {layout.shape}")
    return whole
