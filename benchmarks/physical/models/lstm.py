"""LSTM: a recurrent language model."""

from typing import Any

import torch
from benchmarks.physical.models.synthetic import VOCABULARY, tokens
from benchmarks.physical.models.training import Training, supervised
from torch import nn

_WIDTH, _LAYERS, _LENGTH = 512, 2, 64


def build(batch_size: int, device: str) -> Training:
    """Return the training of an LSTM by Adam, with clipped gradients."""
    model = nn.ModuleDict(
        {
            "embedding": nn.Embedding(VOCABULARY, _WIDTH),
            "lstm": nn.LSTM(_WIDTH, _WIDTH, _LAYERS, batch_first=True),
            "tokens": nn.Linear(_WIDTH, VOCABULARY),
        }
    ).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def loss_of_batch() -> Any:
        text = tokens(batch_size, _LENGTH + 1, device)
        hidden, _ = model["lstm"](model["embedding"](text[:, :-1]))
        return nn.functional.cross_entropy(
            model["tokens"](hidden).flatten(0, 1), text[:, 1:].flatten()
        )

    return supervised(model, optimizer, loss_of_batch)
