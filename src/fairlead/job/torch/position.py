"""Position in the passes over a loader or sampler, exact in the middle of a shuffled pass.

The order of a pass follows from the random states at its first draw, so that a checkpoint holds
these and the number of items that the training loop has used. A resumed pass draws the same
order and skips that many indices; no data is loaded for them. Where the ranks of a gang divide
the order among them, the number of items that the whole gang has used counts, so that a gang of
another size continues there.
"""

import hashlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import torch

from fairlead.job.torch import rng
from fairlead.job.torch.global_batches import GlobalBatchSampler, items_per_batch

State = dict[str, Any]


class Position:
    """Position in the passes over one loader or sampler."""

    def __init__(
        self,
        samplers: Sequence[Any],
        *,
        generators: Sequence[Any] = (),
        has_order: bool = True,
        fetches_in_process: bool = True,
        batch_size: int | None = None,
    ) -> None:
        """Count passes over an object that draws its order from samplers and generators.

        Samplers may have a generator or a state. Without ``has_order`` the items come from an
        iterable, whose first items are fetched again.
        """
        self._gang_items = items_per_batch(samplers, batch_size)
        self._global = next((s for s in samplers if isinstance(s, GlobalBatchSampler)), None)
        if self._global is not None:
            self._global.bind(self._items)
        self._first_item = 0
        """items of the pass that batches of another size held"""
        self.fetched, self.fetches_in_process = 0, fetches_in_process
        self.before_item: Callable[[], None] = lambda: None
        """called before the loop receives an item"""
        of_samplers = (getattr(sampler, "generator", None) for sampler in samplers)
        self._generators = _unique((*generators, *of_samplers))
        self._stateful = [one for one in samplers if hasattr(one, "load_state_dict")]
        self._has_order = has_order
        self._pass = -1
        self._used = 0
        self._order: State | None = None
        self._seed = 0
        self._alive: Callable[[], object] = lambda: None
        self._ordered: Callable[[], OrderedPass | None] = lambda: None
        self._skip_passes = 0
        self._resumed: State | None = None
        self._skip = self._first_number = 0
        self._marked: State = self.present()

    # -- the run's side

    def mark(self) -> None:
        """Remember the position between two steps; one that waits to be resumed stays."""
        if self._resumed is None:
            self._marked = self.present()

    def begin(self) -> None:
        """Do nothing: a pass is resumed when the program iterates again."""

    def continue_pass(self) -> None:
        """Resume the present pass next, without empty ones for those that are done."""
        self._skip_passes = 0

    def state_dict(self) -> State:
        """Return the position at the last mark."""
        return self._marked

    def load_state_dict(self, state: State) -> None:
        """Continue from a position."""
        self._resumed, self._marked = state, state
        self._skip_passes = max(state["pass"], 0)

    @property
    def can_resize(self) -> bool:
        """Whether a gang of another size divides the same batches."""
        return self._global is not None

    def resized(self, rank: int, world_size: int) -> None:
        """Continue the present pass as this rank of a gang of another size."""
        assert self._global is not None
        self._global.rank, self._global.world_size = rank, world_size
        self.load_state_dict(self._marked)
        self.continue_pass()

    def fork(self, rank: int) -> None:
        """Give the batches of a rank that is new in the gang seeds of their own."""
        assert self._resumed is not None
        seed = (self._resumed["seed"] + 0xBF58476D1CE4E5B9 * (rank + 1)) % (1 << 63)
        self._resumed = self._marked = {**self._resumed, "seed": seed}

    def present(self) -> State:
        """Return the present position; a pass that was abandoned counts as done."""
        has_begun = self._alive() is not None
        return {
            "pass": self._pass if has_begun else self._pass + 1,
            "has_begun": has_begun,
            "used": self._used if has_begun else 0,
            "items": self._items() if has_begun and self._gang_items else None,
            "order": self._order if has_begun else None,
            "seed": self._seed,
            "sources": self._sources(),
        }

    # -- the loader's side

    def iterate(self, make: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """Return an iterator over the next pass, which ``make`` starts."""
        if self._skip_passes:
            self._skip_passes -= 1
            return iter(())
        resumed, self._resumed = self._resumed, None
        if resumed is not None and resumed["has_begun"]:
            with rng.preserved():
                return self._count(self._resume(make, resumed))
        if resumed is not None:
            self._pass = resumed["pass"] - 1
            self._set_sources(resumed["sources"])
        self._pass, self._used, self._first_item = self._pass + 1, 0, 0
        self._order = None if self._has_order else self._capture()
        digest = hashlib.blake2b(bytes(torch.get_rng_state().numpy()), digest_size=7).digest()
        self._seed = int.from_bytes(digest, "big") + self._pass
        return self._count(make())

    def _resume(self, make: Callable[[], Iterator[Any]], resumed: State) -> Iterator[Any]:
        """Return a pass that had begun, after the items that were used."""
        self._pass, self._used, self._seed, self._order = (
            resumed[name] for name in ("pass", "used", "seed", "order")
        )
        self._skip = self._first_number = self._used
        items = resumed.get("items")
        if items is not None and self._gang_items:
            self._resume_at(items, self._gang_items)
        if not self._has_order:
            self.set_order(resumed["order"])
            iterator = make()
            for _ in range(self._used):
                next(iterator, None)
            return iterator
        iterator = make()
        ordered = self._ordered()
        if self._order is None:  # no index was drawn yet: the first one draws from these
            self._set_sources(resumed["sources"])
        elif ordered is not None:  # workers have drawn indices already
            ordered.skip_used()
        else:  # a generator: its first item starts the loader, which draws a seed
            iterator = chain(list(islice(iterator, 1)), iterator)
        return iterator

    def _resume_at(self, items: int, per_batch: int) -> None:
        """Continue after the items that a gang, perhaps of another size, has used."""
        if self._global is not None:
            self._global.start_at(items)
            self._skip, self._first_item = 0, items - self._used * per_batch
        else:
            # A batch that other batches overlap is repeated: all ranks begin with the same one.
            self._used = self._skip = self._first_number = items // per_batch

    def _items(self) -> int:
        """Return the items of the present pass that the gang has received."""
        return self._first_item + self._used * (self._gang_items or 0)

    def order(self, indices: Iterable[Any]) -> "OrderedPass":
        """Return the indices of the present pass, after those that were used before."""
        ordered = OrderedPass(self, indices)
        self._ordered = weakref.ref(ordered)  # a loader with workers asks twice, and uses the last
        return ordered

    def take_skip(self) -> tuple[int, int]:
        """Return, once, the number of the first batch, and the indices to skip before it."""
        number, skip = self._first_number, self._skip
        self._first_number = self._skip = 0
        return number, skip

    @property
    def number(self) -> int:
        """Number of the present pass, from 0."""
        return self._pass

    def seed_of(self, number: int) -> int:
        """Return the seed of a batch, the same in every lease and worker."""
        return (self._seed + 0x9E3779B97F4A7C15 * (number + 1)) % (1 << 63)

    def draw(self) -> State | None:
        """Return the states from which a resumed pass draws its order, None for a new pass.

        A new pass draws from the present states, which are remembered.
        """
        if self._order is not None:
            return self._order
        self._order = self._capture()
        return None

    def _count(self, iterator: Iterator[Any]) -> "_CountedPass":
        counted = _CountedPass(self, iterator)
        self._alive = weakref.ref(counted)
        return counted

    def count(self) -> None:
        """Count an item that the training loop has received."""
        self._used += 1
        self.fetched += 1

    def end(self) -> None:
        """Note that the pass has no further items."""
        self._alive = lambda: None

    def _capture(self) -> State:
        return {"rng": rng.capture(), "sources": self._sources()}

    def set_order(self, state: State) -> None:
        """Set the random states from which a pass draws its order."""
        rng.restore(state["rng"])
        self._set_sources(state["sources"])

    def _sources(self) -> State:
        return {
            "generators": [generator.get_state() for generator in self._generators],
            "states": [source.state_dict() for source in self._stateful],
        }

    def _set_sources(self, state: State) -> None:
        for generator, content in zip(self._generators, state["generators"], strict=True):
            generator.set_state(content)
        for source, content in zip(self._stateful, state["states"], strict=True):
            source.load_state_dict(content)


class OrderedPass:
    """Indices of one pass, numbered from its beginning."""

    def __init__(self, position: Position, indices: Iterable[Any]) -> None:
        self._position, self._indices = position, indices
        self._number = 0
        self._iterator: Iterator[Any] | None = None

    def __iter__(self) -> "OrderedPass":
        return self

    def __next__(self) -> tuple[int, Any]:
        self.skip_used()
        assert self._iterator is not None
        index = next(self._iterator)
        self._number += 1
        return self._number - 1, index

    def skip_used(self) -> None:
        """Draw the order of the pass, and skip the indices that were used before."""
        if self._iterator is not None:
            return
        order = self._position.draw()
        if order is None:
            self._iterator = iter(self._indices)
            return
        with rng.preserved():
            self._position.set_order(order)
            iterator = iter(self._indices)
            self._number, skip = self._position.take_skip()
            for _ in range(skip):
                next(iterator, None)
            # A sampler may draw the order only with its first index.
            self._iterator = chain(list(islice(iterator, 1)), iterator)


class _CountedPass:
    """Items of one pass, counted as the training loop receives them."""

    def __init__(self, position: Position, iterator: Iterator[Any]) -> None:
        self._position, self._iterator = position, iterator

    def __iter__(self) -> "_CountedPass":
        return self

    def __next__(self) -> Any:
        self._position.before_item()
        try:
            item = next(self._iterator)
        except StopIteration:
            self._position.end()
            raise
        self._position.count()
        return item


def _unique(things: Iterable[Any]) -> list[Any]:
    return list({id(thing): thing for thing in things if thing is not None}.values())
