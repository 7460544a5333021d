"""ViT: a vision transformer on patches of 4 × 4 pixels."""

from typing import Any

import torch
from benchmarks.physical.models.synthetic import CLASSES, SIDE, Images
from benchmarks.physical.models.training import Training, supervised
from benchmarks.physical.models.transformer import WIDTH, positions, transformer_layers
from torch import nn

_PATCH = 4


def build(batch_size: int, device: str) -> Training:
    """Return the training of a small vision transformer by AdamW."""
    model = nn.ModuleDict(
        {
            "patches": nn.Conv2d(3, WIDTH, _PATCH, _PATCH),
            "layers": transformer_layers(),
            "classes": nn.Linear(WIDTH, CLASSES),
        }
    )
    model.positions = positions((SIDE // _PATCH) ** 2)
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    images = Images(batch_size, device)

    def loss_of_batch() -> Any:
        inputs, labels = images.batch()
        patches = model["patches"](inputs).flatten(2).transpose(1, 2) + model.positions
        return nn.functional.cross_entropy(
            model["classes"](model["layers"](patches).mean(1)), labels
        )

    return supervised(model, optimizer, loss_of_batch)
