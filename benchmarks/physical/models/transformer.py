"""The layers that the three transformers share."""

from typing import Any

import torch
from torch import nn

WIDTH, HEADS, LAYERS = 384, 6, 6


def transformer_layers() -> Any:
    """Return transformer layers with normalised inputs, for batches of sequences."""
    layer = nn.TransformerEncoderLayer(
        WIDTH, HEADS, 4 * WIDTH, activation="gelu", batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)


def positions(length: int) -> Any:
    """Return a learned vector for each position."""
    return nn.Parameter(0.02 * torch.randn(length, WIDTH))
