"""RL policy: an actor-critic that learns to balance poles, many at once."""

from typing import Any

import torch
from benchmarks.physical.models.training import Training, supervised
from torch import nn

_HORIZON = 16
"""moves between two updates of the policy"""
_DISCOUNT, _TICK_S = 0.99, 0.02
_GRAVITY, _CART_KG, _POLE_KG, _HALF_POLE_M, _FORCE_N = 9.8, 1.0, 0.1, 0.5, 10.0
_MAX_POSITION_M, _MAX_ANGLE = 2.4, 0.21


class _Poles:
    """Carts with poles, with the dynamics of Barto, Sutton and Anderson (1983)."""

    def __init__(self, count: int, device: str) -> None:
        self.state = torch.zeros(count, 4, device=device)
        """position, velocity, angle and angular velocity of each"""

    def move(self, right: Any) -> Any:
        """Push each cart; return the reward, 0 for poles that fell and start again."""
        _, velocity, angle, spin = self.state.unbind(1)
        push = _FORCE_N * (2.0 * right - 1.0)
        total = _CART_KG + _POLE_KG
        swing = (push + _POLE_KG * _HALF_POLE_M * spin**2 * angle.sin()) / total
        torque = _GRAVITY * angle.sin() - angle.cos() * swing
        turn = torque / (_HALF_POLE_M * (4 / 3 - _POLE_KG * angle.cos() ** 2 / total))
        slide = swing - _POLE_KG * _HALF_POLE_M * turn * angle.cos() / total
        change = torch.stack((velocity, slide, spin, turn), 1)
        moved = self.state + _TICK_S * change
        stands = (moved[:, 0].abs() < _MAX_POSITION_M) & (moved[:, 2].abs() < _MAX_ANGLE)
        fresh = 0.05 * (2 * torch.rand_like(moved) - 1)
        self.state.copy_(torch.where(stands.unsqueeze(1), moved, fresh))
        return stands.float()


def build(batch_size: int, device: str) -> Training:
    """Return the training of a policy on ``batch_size`` poles by Adam."""
    model = nn.Sequential(nn.Linear(4, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh())
    model.append(nn.Linear(256, 3)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    poles = _Poles(batch_size, device)

    def loss_of_batch() -> Any:
        chances, values, rewards = [], [], []
        for _ in range(_HORIZON):
            output = model(poles.state.clone())
            logits, value = output[:, :2].log_softmax(1), output[:, 2]
            right = (torch.rand_like(value) < logits[:, 1].exp()).long()
            chances.append(logits.gather(1, right.unsqueeze(1)).squeeze(1))
            values.append(value)
            rewards.append(poles.move(right.float()))
        with torch.no_grad():
            ahead = model(poles.state)[:, 2]
        losses = []
        for chance, value, reward in zip(chances[::-1], values[::-1], rewards[::-1], strict=True):
            ahead = reward + _DISCOUNT * reward * ahead  # a pole that fell has no future
            advantage = ahead - value
            losses.append((0.5 * advantage**2 - advantage.detach() * chance).mean())
        return torch.stack(losses).mean()

    training = supervised(model, optimizer, loss_of_batch)
    return Training({**training.parts, "poles": poles.state}, training.step)
