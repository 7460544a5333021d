"""Synthetic data, drawn on the device: noisy images of ten classes, and token sequences."""

from typing import Any

import torch

CLASSES = 10
SIDE = 32
"""height and width of an image"""
VOCABULARY = 4096
_STRIDES = 16


class Images:
    """Images that are a fixed pattern per class plus noise."""

    def __init__(self, batch_size: int, device: str) -> None:
        self._batch_size, self._device = batch_size, device
        self._patterns = torch.randn(CLASSES, 3, SIDE, SIDE, device=device)

    def batch(self) -> tuple[Any, Any]:
        """Return new images and their classes."""
        labels = torch.randint(CLASSES, (self._batch_size,), device=self._device)
        patterns = self._patterns[labels]
        return patterns + torch.randn_like(patterns), labels


def tokens(batch_size: int, length: int, device: str) -> Any:
    """Return sequences of tokens, each with a constant stride from a random start."""
    start = torch.randint(VOCABULARY, (batch_size, 1), device=device)
    stride = torch.randint(1, _STRIDES, (batch_size, 1), device=device)
    return (start + stride * torch.arange(length, device=device)) % VOCABULARY
