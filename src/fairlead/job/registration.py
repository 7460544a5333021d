"""Registered objects: the parts of a run's state, saved and restored by name."""

import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, Protocol, runtime_checkable

from fairlead.block_file import Payload
from fairlead.job.state_format import SavedState


class Stateful(Protocol):
    """An object whose state a checkpoint holds."""

    def state_dict(self) -> Any:
        """Return the state as data."""

    def load_state_dict(self, state: Any, /) -> object:
        """Restore a state."""


@runtime_checkable
class Positioned(Stateful, Protocol):
    """A state that changes when the next batch is fetched, before the step that uses it."""

    def mark(self) -> None:
        """Remember the present state: ``state_dict`` returns it until the next mark."""

    def begin(self) -> None:
        """Continue from the restored state: training starts."""

    @property
    def fetches_in_process(self) -> bool:
        """Whether this process fetches the items, and no worker."""

    @property
    def fetched(self) -> int:
        """Number of items fetched in this process."""


class RegisteredState:
    """The registered objects of a run and the states that wait for theirs."""

    def __init__(self) -> None:
        self._things: dict[str, Stateful] = {}
        self._positioned: list[Positioned] = []
        self._has_begun = False
        self.saved: SavedState | None = None
        """states of the checkpoint that wait for their objects"""
        self._read_ranks: Callable[[], Iterator[Payload]] | None = None
        """reads the files of all ranks that saved the checkpoint, if the gang had another size"""
        self._new_rank: int | None = None
        self.has_position = False
        """a registered loader or sampler continues where the checkpoint left it"""
        self.behind = 0
        """items by which its position is behind the steps of the checkpoint"""

    def resize(self, read_ranks: Callable[[], Iterator[Payload]], *, new_rank: int | None) -> None:
        """Restore the checkpoint of a gang of another size, which had no such ``new_rank``.

        A new rank starts from rank 0's states; its random numbers differ. Sharded tensors are
        resharded.
        """
        self._read_ranks, self._new_rank = read_ranks, new_rank

    def add(self, name: str, thing: object) -> None:
        """Register an object, and restore its state if the checkpoint has one."""
        stateful = adapt(name, thing)
        if _is_from_torch(stateful) and _RNG not in self._things:
            from fairlead.job.torch.rng import Rng  # noqa: PLC0415  # only jobs that use it have it

            self._add(_RNG, Rng())
        self._add(name, stateful)

    def _add(self, name: str, stateful: Stateful) -> None:
        self._things[name] = stateful
        if isinstance(stateful, Positioned):
            self._positioned.append(stateful)
            rng: Any = self._things.get(_RNG)
            if name != _RNG and rng is not None:
                rng.fetch_draws = any(one.fetches_in_process for one in self._loaders())
        if self.saved is None:
            return
        if name not in self.saved.names():
            return
        if _follows_items(name, stateful):
            state = self.saved.take_position(name)
            if state is None:  # it starts from the first item, and skips
                return
        else:
            # Parameters are copied into their module: a second copy need not fit on the device.
            to_copy = getattr(stateful, "copies_tensors", False)
            state = self.saved.take(name, to_copy=to_copy)
        if self._read_ranks is not None and "torch" in sys.modules:
            state = self._joined(name, state, self._read_ranks)
        stateful.load_state_dict(state)
        fork = getattr(stateful, "fork", None)
        if self._new_rank is not None and fork is not None and _is_from_torch(stateful):
            fork(self._new_rank)
        self.has_position |= isinstance(stateful, Positioned) and name != _RNG

    def _joined(self, name: str, state: Any, read: Callable[[], Iterator[Payload]]) -> Any:
        """Return a state with whole tensors for parts that other ranks hold the rest of."""
        from fairlead.job.torch import shards  # noqa: PLC0415  # only jobs that use it have it

        if not shards.has_parts(state):
            return state
        return shards.join(SavedState(one).take(name, to_copy=True) for one in read())

    def can_resize(self, items: object) -> bool:
        """Return whether this process can continue in a gang of another size.

        ``items`` is what training iterates over: a registered loader whose batches a gang of any
        size divides, or, without a registered loader, any object but a loader.
        """
        loaders = self._loaders()
        if "torch" not in sys.modules:
            return not loaders
        from fairlead.job.torch.loaders import position_of  # noqa: PLC0415  # as above

        if not loaders:
            return not hasattr(items, "dataset")
        return [position_of(items)] == loaders and getattr(loaders[0], "can_resize", False)

    def resized(self, rank: int, world_size: int) -> bool:
        """Continue as a rank of a gang of another size; return whether to iterate again."""
        for thing in self._things.values():
            adapt_to = getattr(thing, "resized", None)
            if adapt_to is not None and _is_from_torch(thing):
                adapt_to(rank, world_size)
        return bool(self._loaders())

    def _loaders(self) -> list[Positioned]:
        rng = self._things.get(_RNG)
        return [one for one in self._positioned if one is not rng]

    def begin(self) -> None:
        """Continue from the restored states, once, before the first item is fetched."""
        if not self._has_begun:
            self._has_begun = True
            for thing in self._positioned:
                thing.begin()

    def skip(self, iterator: Iterator[Any], count: int) -> tuple[Iterator[Any], int]:
        """Return the items after the first ``count``, and how many of these were missing.

        A registered loader or sampler continues where it was: it skips those only that it is
        behind.
        """
        while count:
            fetched = self.fetched()
            item = next(iterator, self)
            if item is self:
                break
            count -= 1
            if self.has_position and self.fetched() > fetched:
                if not self.behind:
                    return chain((item,), iterator), 0
                self.behind -= 1
                count = self.behind
        return iterator, count

    def mark(self) -> None:
        """Remember positions and random states as they are between two steps."""
        for thing in self._positioned:
            thing.mark()

    def fetched(self) -> int:
        """Return the number of items that registered loaders and samplers have yielded."""
        return sum(thing.fetched for thing in self._positioned)

    def continue_epoch(self) -> None:
        """Resume each loader's present pass at once: epochs that are done are not repeated."""
        for thing in self._positioned:
            resume = getattr(thing, "continue_pass", None)
            if resume is not None:
                resume()

    def state_dicts(self) -> dict[str, Any]:
        """Return the state of every object."""
        return {name: thing.state_dict() for name, thing in self._things.items()}


def adapt(name: str, thing: Any) -> Stateful:
    """Return an object's state; TypeError for an object whose state is unknown.

    PyTorch's loaders and samplers become resumable in place.
    """
    if isinstance(thing, dict):
        return _DictState(thing)
    if isinstance(thing, list):
        return _ListState(thing)
    if "torch" in sys.modules:
        from fairlead.job.torch import adapters  # noqa: PLC0415  # only jobs that use it have it

        adapted: Stateful | None = adapters.adapt(name, thing)
        if adapted is not None:
            return adapted
    for method in ("state_dict", "load_state_dict"):
        if not callable(getattr(thing, method, None)):
            raise TypeError(
                f"register({name}=…): a {type(thing).__name__} has no {method}(): expected"
                " a dict, a list or an object with state_dict and load_state_dict"
            )
    stateful: Stateful = thing
    return stateful


def _follows_items(name: str, stateful: Stateful) -> bool:
    """Return whether a state belongs to a place among the items."""
    own = name.startswith(_OWN_PREFIX) or isinstance(stateful, Positioned)
    return own or getattr(stateful, "follows_items", False)


_OWN_PREFIX = "fairlead."
"""beginning of the names of states that the library adds"""
_RNG = "fairlead.rng"
"""name of the random states, which no keyword argument has"""


def _is_from_torch(stateful: object) -> bool:
    modules = (base.__module__ for base in type(stateful).__mro__)
    return any(module.startswith(("torch.", "fairlead.job.torch.")) for module in modules)


class _DictState:
    """A dict, updated in place."""

    def __init__(self, content: dict[Any, Any]) -> None:
        self._content = content

    def state_dict(self) -> dict[Any, Any]:
        return self._content

    def load_state_dict(self, state: Mapping[Any, Any]) -> None:
        self._content.clear()
        self._content.update(state)


class _ListState:
    """A list, updated in place."""

    def __init__(self, content: list[Any]) -> None:
        self._content = content

    def state_dict(self) -> list[Any]:
        return self._content

    def load_state_dict(self, state: list[Any]) -> None:
        self._content[:] = state
