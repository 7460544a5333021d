"""Transformer encoder that predicts masked tokens, and decoder that predicts the next one."""

from typing import Any

import torch
from benchmarks.physical.models.synthetic import VOCABULARY, tokens
from benchmarks.physical.models.training import Training, supervised
from benchmarks.physical.models.transformer import WIDTH, positions, transformer_layers
from torch import nn

_LENGTH = 128
_MASKED = 0.15
"""fraction of tokens that the encoder must predict"""
_MASK = VOCABULARY
"""token in the place of a masked one"""


def build_encoder(batch_size: int, device: str) -> Training:
    """Return the training of a small BERT by AdamW."""
    model, optimizer = _model(device)

    def loss_of_batch() -> Any:
        text = tokens(batch_size, _LENGTH, device)
        masked = torch.rand(text.shape, device=device) < _MASKED
        hidden = model["layers"](_embedded(model, text.masked_fill(masked, _MASK)))
        losses = nn.functional.cross_entropy(
            model["tokens"](hidden).flatten(0, 1), text.flatten(), reduction="none"
        )
        return (losses * masked.flatten()).sum() / masked.sum().clamp(min=1)

    return supervised(model, optimizer, loss_of_batch)


def build_decoder(batch_size: int, device: str) -> Training:
    """Return the training of a small GPT by AdamW."""
    model, optimizer = _model(device)
    causal = nn.Transformer.generate_square_subsequent_mask(_LENGTH, device=device)

    def loss_of_batch() -> Any:
        text = tokens(batch_size, _LENGTH + 1, device)
        hidden = model["layers"](_embedded(model, text[:, :-1]), mask=causal, is_causal=True)
        return nn.functional.cross_entropy(
            model["tokens"](hidden).flatten(0, 1), text[:, 1:].flatten()
        )

    return supervised(model, optimizer, loss_of_batch)


def _model(device: str) -> tuple[Any, Any]:
    model = nn.ModuleDict(
        {
            "embedding": nn.Embedding(VOCABULARY + 1, WIDTH),
            "layers": transformer_layers(),
            "tokens": nn.Linear(WIDTH, VOCABULARY),
        }
    )
    model.positions = positions(_LENGTH)
    model.to(device)
    return model, torch.optim.AdamW(model.parameters(), lr=3e-4)


def _embedded(model: Any, text: Any) -> Any:
    return model["embedding"](text) + model.positions
