"""Loaders and samplers that resume in mid-epoch: batches of workers are neither lost nor repeated.

A registered object keeps its identity and changes its class, so that every way of iterating over
it counts. In workers, and where a batch is fetched ahead, each batch has a seed of its own: random
augmentation depends neither on the worker nor on interruptions.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from torch.utils import data

from fairlead.job.torch import rng
from fairlead.job.torch.position import OrderedPass, Position

_POSITION = "_fairlead_position"
_SEEDS_HERE = "_fairlead_seeds_here"
"""whether this process fetches batches ahead: random numbers of their own keep those of steps"""


def resume_loader(name: str, loader: Any) -> Position:
    """Make a DataLoader resumable in place; return its position."""
    known: Position | None = vars(loader).get(_POSITION)
    if known is not None:
        return known
    inner = getattr(loader.batch_sampler, "sampler", None)
    samplers = [loader.sampler, loader.batch_sampler, inner]
    for sampler in samplers:
        if hasattr(sampler, _POSITION):
            raise TypeError(
                f"register({name}=…): its sampler is registered, too:"
                " expected the loader only, whose position includes the sampler's"
            )
    is_map = not isinstance(loader.dataset, data.IterableDataset)
    position = Position(
        samplers,
        generators=[loader.generator],
        has_order=is_map,
        fetches_in_process=loader.num_workers == 0,
        batch_size=getattr(loader.batch_sampler, "batch_size", None),
    )
    # accelerate's loaders contain another one and fetch a batch ahead: the inner one has the
    # order, the outer one yields the batches.
    inner_loader = vars(loader).get("base_dataloader", loader)
    for one in (inner_loader, loader):
        vars(one)[_POSITION] = position
    vars(inner_loader)[_SEEDS_HERE] = inner_loader is not loader and loader.num_workers == 0
    inner_loader.__class__ = _ordered_loader(type(inner_loader))
    # accelerate's loaders hide their class, and with it the plain assignment.
    vars(object)["__class__"].__set__(loader, _counted_loader(type(loader)))
    return position


def is_resumable(loader: Any) -> bool:
    """Return whether a loader was made resumable: it continues by itself where it was."""
    return _POSITION in vars(loader)


def position_of(loader: Any) -> Position | None:
    """Return the position of a loader that was made resumable; None of any other object."""
    position: Position | None = getattr(loader, "__dict__", {}).get(_POSITION)
    return position


def resume_sampler(sampler: Any) -> Position:
    """Make a sampler that the training loop iterates over resumable in place."""
    known: Position | None = vars(sampler).get(_POSITION)
    if known is not None:
        return known
    batch_size = getattr(sampler, "batch_size", None)
    position = Position([sampler, getattr(sampler, "sampler", None)], batch_size=batch_size)
    vars(sampler)[_POSITION] = position
    sampler.__class__ = _resumable_sampler(type(sampler))
    return position


def _counted_loader(base: Any) -> type:
    """Return a class of loaders that count their batches."""

    class Counted(base):
        def __iter__(self) -> Iterator[Any]:
            position: Position = self._fairlead_position
            return position.iterate(lambda: self._start(position.number))

        def _start(self, number: int) -> Iterator[Any]:
            if "iteration" in self.__dict__:  # accelerate's number of the pass
                self.iteration = number
            return iter(super().__iter__())

    return _named_like(Counted, base)


def _ordered_loader(base: Any) -> type:
    """Return a class of loaders that skip the batches that were used before."""

    class Ordered(base):
        @property
        def _index_sampler(self) -> Any:
            indices = super()._index_sampler
            if isinstance(self.dataset, data.IterableDataset):
                return indices
            return _NumberedSampler(indices, self._fairlead_position)

        def _get_iterator(self) -> Any:
            attributes: dict[str, Any] = self.__dict__
            dataset, collate = self.dataset, self.collate_fn
            if isinstance(dataset, data.IterableDataset):
                return super()._get_iterator()
            attributes["dataset"] = _SeededDataset(dataset)
            if attributes[_SEEDS_HERE]:
                attributes["dataset"] = seeded = _SeededHere(dataset, collate)
                attributes["collate_fn"] = seeded.collate
            try:
                return super()._get_iterator()
            finally:
                attributes.update(dataset=dataset, collate_fn=collate)

    return _named_like(Ordered, base)


def _resumable_sampler(base: Any) -> type:
    """Return a class of samplers that count their indices and skip those that were used before."""

    class Resumable(base):
        def __iter__(self) -> Iterator[Any]:
            position: Position = self._fairlead_position
            indices = _Iterable(super().__iter__)
            return position.iterate(lambda: _Unnumbered(position.order(indices)))

    return _named_like(Resumable, base)


def _named_like(made: type, base: type) -> type:
    made.__name__, made.__qualname__ = base.__name__, base.__qualname__
    made.__module__ = base.__module__
    return made


class _Iterable:
    """An iterable made of a function that returns an iterator."""

    def __init__(self, start: Any) -> None:
        self._start = start

    def __iter__(self) -> Iterator[Any]:
        iterator: Iterator[Any] = self._start()
        return iterator


class _Unnumbered:
    """Indices of a pass without their numbers."""

    def __init__(self, ordered: OrderedPass) -> None:
        self._ordered = ordered

    def __iter__(self) -> "_Unnumbered":
        return self

    def __next__(self) -> Any:
        return next(self._ordered)[1]


class _NumberedSampler:
    """Yields (seed of the batch, its indices) to the loader's workers."""

    def __init__(self, indices: Any, position: Position) -> None:
        self._indices, self._position = indices, position

    def __len__(self) -> int:
        return len(self._indices)

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        ordered = self._position.order(self._indices)
        return _Seeded(ordered, self._position)


class _Seeded:
    """Numbered batches with their seeds."""

    def __init__(self, ordered: OrderedPass, position: Position) -> None:
        self._ordered, self._position = ordered, position

    def __iter__(self) -> "_Seeded":
        return self

    def __next__(self) -> tuple[int, Any]:
        number, indices = next(self._ordered)
        return self._position.seed_of(number), indices


class _SeededDataset(data.Dataset):
    """A data set whose workers draw each batch's random numbers from the batch's seed."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._dataset, name)  # a program's worker_init_fn may use it

    def __getitem__(self, numbered: tuple[int, Any]) -> Any:
        """Return the item of one index: the loader makes no batches."""
        self._seed(numbered[0])
        return self._dataset[numbered[1]]

    def __getitems__(self, numbered: tuple[int, Sequence[Any]]) -> Any:
        """Return the items of one batch."""
        seed, indices = numbered
        self._seed(seed)
        fetch = getattr(self._dataset, "__getitems__", None)
        return fetch(indices) if fetch else [self._dataset[index] for index in indices]

    def _seed(self, seed: int) -> None:
        _seed_worker(seed)


class _SeededHere(_SeededDataset):
    """A data set whose batches this process fetches ahead, each with its own random numbers."""

    def __init__(self, dataset: Any, collate: Any) -> None:
        super().__init__(dataset)
        self._collate = collate
        self._before: rng.State = {}

    def _seed(self, seed: int) -> None:
        self._before = rng.capture(devices=False)
        rng.seed_host(seed)

    def collate(self, items: Any) -> Any:
        """Return the batch of items, and continue with the random states before them."""
        try:
            return self._collate(items)
        finally:
            rng.restore(self._before)


def _seed_worker(seed: int) -> None:
    if data.get_worker_info() is None:  # the loop's own random states are in the checkpoint
        return
    rng.seed_host(seed)
