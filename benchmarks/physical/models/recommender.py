"""Recommender: embeddings of sparse features below an MLP, as in DLRM."""

from typing import Any

import torch
from benchmarks.physical.models.training import Training, supervised
from torch import nn

_FEATURES, _ROWS, _WIDTH = 16, 20_000, 64
_DENSE = 13
"""numeric features of a sample"""


def build(batch_size: int, device: str) -> Training:
    """Return the training of a recommender by Adagrad."""
    model = nn.ModuleDict(
        {
            "embedding": nn.Embedding(_FEATURES * _ROWS, _WIDTH),
            "dense": nn.Sequential(nn.Linear(_DENSE, 256), nn.ReLU(), nn.Linear(256, _WIDTH)),
            "top": nn.Sequential(
                nn.Linear((_FEATURES + 1) * _WIDTH, 512), nn.ReLU(), nn.Linear(512, 1)
            ),
        }
    ).to(device)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    first_rows = _ROWS * torch.arange(_FEATURES, device=device)

    def loss_of_batch() -> Any:
        values = torch.randint(_ROWS, (batch_size, _FEATURES), device=device)
        numbers = torch.randn(batch_size, _DENSE, device=device)
        clicked = (values[:, 0] % 2 == 0) & (numbers[:, 0] > -0.5)
        embedded = model["embedding"](values + first_rows).flatten(1)
        logits = model["top"](torch.cat((embedded, model["dense"](numbers)), 1)).squeeze(1)
        return nn.functional.binary_cross_entropy_with_logits(logits, clicked.float())

    return supervised(model, optimizer, loss_of_batch)
