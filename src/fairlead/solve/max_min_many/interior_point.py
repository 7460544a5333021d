"""Near-optimal prices by a primal-dual interior point that exploits the problem's structure.

Everything of one class is eliminated in closed form (its Newton matrix is diagonal plus rank
two), which leaves a symmetric system in the resources' prices and t only: an iteration costs
O(classes · resources²). The prices are a starting point; ``stage`` makes the answer exact.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import FloatArray

_MAX_NEWTON_ITERATIONS = 30
_STEP = 0.98  # part of the way to the boundary


@dataclass(frozen=True, slots=True)
class InteriorProblem:
    """max t s.t. gain_k · x_k >= t, Σ_j x_kj <= 1, Σ_k weight_k size_k x_k <= room."""

    gain: FloatArray  # resources × classes
    size: FloatArray  # classes
    weight: FloatArray  # classes
    room: FloatArray  # resources


@dataclass(slots=True)
class _Iterate:
    """An iterate or a step: what classes hold, what resources hold, and t.

    The rows of ``own`` are a class's shares x, its surplus over t and its spare time; those of
    ``dual`` are their duals: the reduced costs z, and the duals λ and μ of level and time.
    """

    own: FloatArray  # (resources + 2) × classes
    dual: FloatArray  # (resources + 2) × classes
    spare: FloatArray  # resources: unused capacity
    prices: FloatArray  # resources
    t: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A level of the water, prices, and how both respond to room: matrix · (dp, dt) = (dr, 0)."""

    t: float
    prices: FloatArray
    matrix: FloatArray


def interior_prices(sample: InteriorProblem, tolerance: float) -> Estimate:
    """Return prices of the resources whose duality gap is about ``tolerance``, relatively.

    It gives up after some iterations and returns what it has; the caller proves or improves it.
    """
    at = _start(sample)
    degree = 2 * len(sample.room) + 2
    for _ in range(_MAX_NEWTON_ITERATIONS):
        gap = float((sample.weight * (at.own * at.dual).sum(axis=0)).sum())
        gap += float((at.spare * at.prices).sum())
        newton = _Newton(sample, at)
        if gap <= tolerance * abs(at.t):
            break
        first = newton.step(0.0, None)
        reach = min(_reach(at, first))
        centre = max((1.0 - reach) ** 2, 0.01) * gap / degree
        step = newton.step(centre, first if reach > 0.1 else None)
        primal, dual = _reach(at, step)
        at.own += primal * step.own
        at.spare += primal * step.spare
        at.t += primal * step.t
        at.dual += dual * step.dual
        at.prices += dual * step.prices
    return Estimate(at.t, at.prices, newton.matrix)


def _start(sample: InteriorProblem) -> _Iterate:
    width, classes = sample.gain.shape
    own = np.full((width + 2, classes), 1.0 / (width + 1))
    own[width] = sample.gain.sum(axis=0) / (width + 1)
    used = (sample.weight * sample.size).sum() / (width + 1)
    spare = np.maximum(sample.room - used, 0.1 * np.maximum(sample.room, used))
    prices = np.full(width, 1.0 / float((sample.weight * sample.size).sum()))
    dual = np.ones((width + 2, classes))
    dual[:width] = np.maximum(1.0 + sample.size * prices[:, None] - sample.gain, 0.1)
    return _Iterate(own, dual, spare, prices, 0.0)


def _reach(at: _Iterate, step: _Iterate) -> tuple[float, float]:
    """Return how far primal and dual may go along a step without leaving the interior."""
    primal = max(-float((step.own / at.own).min()), -float((step.spare / at.spare).min()))
    dual = max(-float((step.dual / at.dual).min()), -float((step.prices / at.prices).min()))
    return min(1.0, _STEP / max(primal, 1e-300)), min(1.0, _STEP / max(dual, 1e-300))


class _Newton:
    """The Newton system at a point, reduced to the prices and t and ready to be solved.

    A class's shares satisfy M dx = right + (λ/surplus) g dt - size dp with
    M = diag(z/x) + (λ/surplus) g gᵀ + (μ/spare time) 1 1ᵀ, which is inverted by its 2 × 2 core.
    """

    def __init__(self, sample: InteriorProblem, at: _Iterate) -> None:
        self.sample, self.at = sample, at
        gain, width = sample.gain, len(sample.gain)
        self.held = sample.weight * sample.size
        x, z = at.own[:width], at.dual[:width]
        surplus, leisure = at.own[width], at.own[width + 1]
        lam, mu = at.dual[width], at.dual[width + 1]
        self.short = (gain * x).sum(axis=0) - at.t - surplus
        self.late = 1.0 - x.sum(axis=0) - leisure
        self.over = sample.room - (self.held * x).sum(axis=1) - at.spare
        self.loss = mu + sample.size * at.prices[:, None] - lam * gain - z
        self.norm = float((sample.weight * lam).sum()) - 1.0
        self.theta = x / z
        self.theta_g = self.theta * gain
        self.k11 = (self.theta_g * gain).sum(axis=0) + surplus / lam
        self.k12 = self.theta_g.sum(axis=0)
        self.k22 = self.theta.sum(axis=0) + leisure / mu
        self.det = self.k11 * self.k22 - self.k12 * self.k12
        self.u = (self.theta_g * self.k22 - self.theta * self.k12) / self.det
        self.matrix = self._matrix()

    def _matrix(self) -> FloatArray:
        at, width = self.at, len(self.sample.gain)
        ones = (self.theta * self.k11 - self.theta_g * self.k12) / self.det
        heavy = self.held * self.sample.size
        block = (heavy * self.u) @ self.theta_g.T + (heavy * ones) @ self.theta.T
        matrix = np.empty((width + 1, width + 1))
        matrix[:width, :width] = block
        diagonal = np.arange(width)
        matrix[diagonal, diagonal] -= (heavy * self.theta).sum(axis=1) + at.spare / at.prices
        matrix[:width, width] = (self.held * self.u).sum(axis=1)
        matrix[width, :width] = matrix[:width, width]
        matrix[width, width] = (self.sample.weight * self.k22 / self.det).sum()
        return matrix

    def step(self, centre: float, first: _Iterate | None) -> _Iterate:
        """Return the step towards complementary products ``centre``.

        ``first`` is the predictor whose second-order error is corrected.
        """
        sample, at, gain = self.sample, self.at, self.sample.gain
        width = len(gain)
        want = centre - at.own * at.dual
        want_spare = centre - at.spare * at.prices
        if first is not None:
            want -= first.own * first.dual
            want_spare -= first.spare * first.prices
        want /= at.own
        rate = at.dual / at.own
        pull = want[width] - rate[width] * self.short
        push = want[width + 1] - rate[width + 1] * self.late
        right = want[:width] - self.loss + gain * pull - push
        base = self._inverse(right)
        target = np.empty(width + 1)
        target[:width] = self.over - want_spare / at.prices - (self.held * base).sum(axis=1)
        lift = pull - (self.u * right).sum(axis=0)
        target[width] = -self.norm - float((sample.weight * lift).sum())
        solved = np.linalg.solve(self.matrix, target)
        prices, t = solved[:width].astype(np.float64), float(solved[width])
        own = np.empty_like(at.own)
        own[:width] = base + self.u * t - self._inverse(sample.size * prices[:, None])
        own[width] = (gain * own[:width]).sum(axis=0) - t + self.short
        own[width + 1] = self.late - own[:width].sum(axis=0)
        spare = (want_spare - at.spare * prices) / at.prices
        return _Iterate(own, want - rate * own, spare, prices, t)

    def _inverse(self, right: FloatArray) -> FloatArray:
        scaled = self.theta * right
        along = (scaled * self.sample.gain).sum(axis=0)
        total = scaled.sum(axis=0)
        first = (self.k22 * along - self.k12 * total) / self.det
        second = (self.k11 * total - self.k12 * along) / self.det
        inverse: FloatArray = scaled - self.theta_g * first - self.theta * second
        return inverse
