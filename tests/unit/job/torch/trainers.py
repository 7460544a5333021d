"""Toys for tests of frameworks that own the training loop, and the check of their preemptions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.job.torch.leases import train_in_leases

from fairlead.job.run import Run

torch = pytest.importorskip("torch")

from torch.utils import data  # noqa: E402  # needs PyTorch

ITEMS, BATCH, EPOCHS = 22, 2, 3

Fit = Callable[[Run, Path, int, int], tuple[Any, ...]]
"""trains with (run, directory, loader's workers, batches per step) → batches seen, and the rest"""


class Noisy(data.Dataset):
    """Items with random augmentation."""

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> Any:
        return torch.full((4,), float(index)) / ITEMS + 0.1 * torch.randn(4)


class Recording:
    """Part of a model that records its batches as part of its state."""

    seen: list[Any]

    def get_extra_state(self) -> Any:
        return {"seen": self.seen}

    def set_extra_state(self, state: Any) -> None:
        self.seen = state["seen"]


def layers() -> Any:
    """Return a small network with dropout."""
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.3), torch.nn.Linear(4, 1))


def loss_of(network: Any, batch: Any) -> Any:
    """Return the mean square error of a sum that the network learns."""
    return ((network(batch) - batch.sum(1, keepdim=True)) ** 2).mean()


in_three_leases = pytest.mark.parametrize(
    ("workers", "accumulated", "preempted_after"),
    [(1, 1, (2, 11, 18)), (0, 3, (1, 4, 6))],
    ids=["in workers", "accumulating"],
)
"""preemptions of which the second one falls between two epochs"""


def check_preemptions(
    fit: Fit, root: Path, workers: int, accumulated: int, preempted_after: tuple[int, ...]
) -> None:
    """Check that a preempted training ends with the bits of one that nothing interrupts."""
    plain = fit(Run(), root, workers, accumulated)
    assert len(plain[0]) == EPOCHS * ITEMS // BATCH
    preempted = train_in_leases(
        lambda run: fit(run, root, workers, accumulated), root, preempted_after
    )
    for one, other in zip(preempted, plain, strict=True):
        assert one == other
