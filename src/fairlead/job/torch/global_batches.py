"""Global batches of an elastic gang: the same items per step for any number of ranks."""

import os
from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Any

import torch
from torch import distributed
from torch.utils import data

from fairlead.job.keeper.channel import JOINS


class GlobalBatchSampler(data.Sampler[list[int]]):
    """Divides each global batch among the ranks of a gang.

    The order of a pass and its batches are the same for every gang size, so that a job that grows
    or shrinks in mid-epoch trains on each item once. Pass it to a DataLoader as ``batch_sampler``
    and register the loader. The parts of two ranks differ by one item at most.
    """

    def __init__(
        self,
        dataset: Sized,
        global_batch: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        """Divide batches of ``global_batch`` items; ranks are those of the process group.

        Each pass has another order. ``drop_last`` omits a last batch that is not full.
        """
        if rank is None or world_size is None:
            rank, world_size = gang_position()
        if global_batch < world_size:
            raise ValueError(
                f"global_batch: {global_batch} for a gang of {world_size}:"
                " expected at least one item per rank"
            )
        self.global_batch, self.rank, self.world_size = global_batch, rank, world_size
        self.shuffle, self.drop_last = shuffle, drop_last
        self.generator = torch.Generator().manual_seed(seed)
        """draws the order of each pass, alike on all ranks"""
        self._items = len(dataset)
        self._first = 0
        self._received: Callable[[], int] | None = None

    def __len__(self) -> int:
        """Return the number of batches of a whole pass."""
        whole, rest = divmod(self._items, self.global_batch)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this rank's part of each batch of the next pass."""
        first, self._first = self._first, 0
        order: Sequence[int] = range(self._items)
        if self.shuffle:
            order = torch.randperm(self._items, generator=self.generator).tolist()
        for start in range(first, self._items, self.global_batch):
            batch = order[start : start + self.global_batch]
            if self.drop_last and len(batch) < self.global_batch:
                return
            # All ranks make the same steps: one without a part repeats an item, at weight 0.
            yield [batch[i] for i in self._part(len(batch))] or [batch[0]]

    @property
    def weight(self) -> float:
        """Factor for this rank's mean loss in the present step.

        DDP and FSDP average gradients over ranks. With this factor the average is that over the
        items of the global batch. It is 1 where the batch divides evenly.
        """
        if self._received is None:
            raise RuntimeError("weight: no loader with this sampler is registered")
        start = self._received() - self.global_batch
        items = min(self.global_batch, self._items - start)
        return len(self._part(items)) * self.world_size / items

    def start_at(self, item: int) -> None:
        """Begin the next pass at an item of its order; those before it were used."""
        self._first = item

    def bind(self, received: Callable[[], int]) -> None:
        """Set the function that returns the items of the pass up to the present step's last."""
        self._received = received

    def _part(self, items: int) -> range:
        """Return this rank's part of a batch; the first ranks have one more of the rest."""
        each, rest = divmod(items, self.world_size)
        start = self.rank * each + min(self.rank, rest)
        return range(start, start + each + (self.rank < rest))


def items_per_batch(samplers: Sequence[Any], batch_size: int | None) -> int | None:
    """Return the items that a gang uses in one step; None if its ranks draw independently."""
    for sampler in samplers:
        if isinstance(sampler, GlobalBatchSampler):
            return sampler.global_batch
        if isinstance(sampler, data.DistributedSampler):
            return int(sampler.num_replicas) * (batch_size or 1)
    return None


def gang_position() -> tuple[int, int]:
    """Return rank and world size of the process group; (0, 1) for a program without a gang.

    A process that is new in a gang joins its group later.
    """
    if JOINS in os.environ:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RuntimeError("the gang has no process group yet: call init_process_group first")
    return 0, 1
