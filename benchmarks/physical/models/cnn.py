"""CNN: a residual network of 18 layers on images of 32 × 32."""

from typing import Any

import torch
from benchmarks.physical.models.synthetic import CLASSES, Images
from benchmarks.physical.models.training import Training, supervised
from torch import nn

_WIDTHS = (64, 128, 256, 512)


class _Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(before, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.shortcut = (
            nn.Identity() if before == width else nn.Conv2d(before, width, 1, stride, bias=False)
        )

    def forward(self, images: Any) -> Any:
        return nn.functional.relu(self.convolutions(images) + self.shortcut(images))


def network(device: str) -> nn.Module:
    """Return a ResNet-18."""
    layers = [nn.Conv2d(3, _WIDTHS[0], 3, 1, 1, bias=False), nn.BatchNorm2d(_WIDTHS[0]), nn.ReLU()]
    before = _WIDTHS[0]
    for width in _WIDTHS:
        layers += [_Block(before, width, 1 if width == before else 2), _Block(width, width, 1)]
        before = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, CLASSES)]
    return nn.Sequential(*layers).to(device)


def build(batch_size: int, device: str) -> Training:
    """Return the training of a ResNet-18 by SGD with momentum."""
    model = network(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    images = Images(batch_size, device)

    def loss_of_batch() -> Any:
        inputs, labels = images.batch()
        return nn.functional.cross_entropy(model(inputs), labels)

    return supervised(model, optimizer, loss_of_batch)
