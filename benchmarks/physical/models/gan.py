"""GAN: a DCGAN that learns to draw images of 32 × 32."""

from typing import Any

import torch
from benchmarks.physical.models.synthetic import Images
from benchmarks.physical.models.training import Training
from torch import nn

_NOISE, _WIDTH = 100, 64


def build(batch_size: int, device: str) -> Training:
    """Return the training of a generator and a discriminator, each by Adam."""
    generator, discriminator = _generator().to(device), _discriminator().to(device)
    generates = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    discriminates = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    images = Images(batch_size, device)

    def step() -> Any:
        drawn = generator(torch.randn(batch_size, _NOISE, 1, 1, device=device))
        discriminates.zero_grad(set_to_none=True)
        loss = _loss(discriminator(images.batch()[0]), 1.0)
        loss = loss + _loss(discriminator(drawn.detach()), 0.0)
        loss.backward()
        discriminates.step()
        generates.zero_grad(set_to_none=True)
        _loss(discriminator(drawn), 1.0).backward()
        generates.step()
        return loss.detach()

    parts = {
        "generator": generator,
        "discriminator": discriminator,
        "generator_optimizer": generates,
        "discriminator_optimizer": discriminates,
    }
    return Training(parts, step)


def _loss(logits: Any, target: float) -> Any:
    wanted = torch.full_like(logits, target)
    return nn.functional.binary_cross_entropy_with_logits(logits, wanted)


def _generator() -> Any:
    layers = [nn.ConvTranspose2d(_NOISE, 4 * _WIDTH, 4, 1, 0, bias=False)]
    for before, width in ((4 * _WIDTH, 2 * _WIDTH), (2 * _WIDTH, _WIDTH)):
        layers += [nn.BatchNorm2d(before), nn.ReLU()]
        layers += [nn.ConvTranspose2d(before, width, 4, 2, 1, bias=False)]
    layers += [nn.BatchNorm2d(_WIDTH), nn.ReLU(), nn.ConvTranspose2d(_WIDTH, 3, 4, 2, 1)]
    return nn.Sequential(*layers)


def _discriminator() -> Any:
    layers = [nn.Conv2d(3, _WIDTH, 4, 2, 1), nn.LeakyReLU(0.2)]
    for before, width in ((_WIDTH, 2 * _WIDTH), (2 * _WIDTH, 4 * _WIDTH)):
        layers += [nn.Conv2d(before, width, 4, 2, 1, bias=False), nn.BatchNorm2d(width)]
        layers += [nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Conv2d(4 * _WIDTH, 1, 4, 1, 0), nn.Flatten())
