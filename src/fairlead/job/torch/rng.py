"""Random states of a process: Python, NumPy if it is imported, PyTorch on the CPU and on GPUs."""

import hashlib
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

State = dict[str, Any]


def capture(*, devices: bool = True) -> State:
    """Return all random states of this process; without ``devices`` those of the CPU only."""
    state: State = {"python": random.getstate(), **_capture_torch(devices=devices)}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        state["numpy"] = numpy.random.get_state(legacy=False)
    return state


def _capture_torch(*, devices: bool = True) -> State:
    state: State = {"torch": torch.get_rng_state()}
    if devices and torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore(state: State) -> None:
    """Set all random states of this process; GPUs that are missing here keep none."""
    random.setstate(state["python"])
    torch.set_rng_state(state["torch"])
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy" in state:
        numpy.random.set_state(state["numpy"])
    if "cuda" in state and torch.cuda.is_available():
        for device, content in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(content, device)


def seed_host(seed: int) -> None:
    """Set the random states of the CPU, and of no GPU, to those of a seed."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % (1 << 32))


def derived_seed(number: int) -> int:
    """Return a seed that follows from the present state of PyTorch's generator and a number."""
    content = bytes(torch.get_rng_state().numpy()) + number.to_bytes(8, "big")
    return int.from_bytes(hashlib.blake2b(content, digest_size=7).digest(), "big")


@contextmanager
def preserved() -> Iterator[None]:
    """Leave the random states as they were before."""
    before = capture()
    try:
        yield
    finally:
        restore(before)


class Rng:
    """The random states as a registered object; restored when training begins.

    Code between ``register`` and the first step, such as a random split of a data set, draws the
    same numbers in every lease.
    """

    fetched = 0
    fetches_in_process = True

    def __init__(self) -> None:
        self.fetch_draws = True
        """whether this process may draw numbers to fetch an item: not if workers do"""
        self._marked: State | None = None
        self._restored: State | None = None
        self._new_rank: int | None = None

    def mark(self) -> None:
        """Remember the states that the next fetch may change; Python's and NumPy's are slow."""
        self._marked = capture() if self.fetch_draws else _capture_torch()

    def begin(self) -> None:
        """Continue from the restored states."""
        if self._restored is not None:
            restore(self._restored)
            self._restored = None
            if self._new_rank is not None:
                seed = derived_seed(self._new_rank)
                seed_host(seed)
                torch.cuda.manual_seed_all(seed)

    def state_dict(self) -> State:
        """Return the states at the last mark."""
        return {**capture(), **(self._marked or {})}

    def load_state_dict(self, state: State) -> None:
        """Keep states until training begins."""
        self._restored = state

    def resized(self, rank: int, world_size: int) -> None:
        """Return to the states at the last mark: the item that was fetched since is not used."""
        del rank, world_size
        self.load_state_dict(self.state_dict())
        self.begin()

    def fork(self, rank: int) -> None:
        """Draw other numbers than the rank whose states a new rank of the gang received."""
        self._new_rank = rank
