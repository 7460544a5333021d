"""Strategies of a search: one module each, behind one contract."""

from collections.abc import Callable, Mapping

from fairlead.model.submission.search import Search
from fairlead.tuning.strategies.base import Strategy
from fairlead.tuning.strategies.feedback import Feedback
from fairlead.tuning.strategies.halving import Asha, Hyperband, RunToEnd
from fairlead.tuning.strategies.population import PopulationBased

__all__ = [
    "Asha",
    "Feedback",
    "Hyperband",
    "PopulationBased",
    "RunToEnd",
    "Strategy",
    "create_strategy",
]

_MIN_PROGRESS = 0.01
_INTERVAL = 0.1


def create_strategy(search: Search, steps: int | None) -> Strategy:
    """Return the strategy that a search names, for trials with this number of steps."""
    return _STRATEGIES[search.strategy](search, steps)


def _min_progress(search: Search, steps: int | None) -> float:
    return _part(search.min_steps, steps, _MIN_PROGRESS)


def _part(some: int | None, steps: int | None, default: float) -> float:
    """Return some steps as a part of a trial's steps."""
    return default if some is None or steps is None else min(some / steps, 1.0)


def _feedback(search: Search, steps: int | None) -> Strategy:
    target = None if search.target is None else search.sign * search.target
    return Feedback(_min_progress(search, steps), search.exclusive, target)


def _population_based(search: Search, steps: int | None) -> Strategy:
    interval = _part(search.interval_steps, steps, _INTERVAL)
    return PopulationBased(interval, search.quantile, search.seed)


_STRATEGIES: Mapping[str, Callable[[Search, int | None], Strategy]] = {
    "asha": lambda search, steps: Asha(_min_progress(search, steps)),
    "hyperband": lambda search, steps: Hyperband(_min_progress(search, steps)),
    "feedback": _feedback,
    "pbt": _population_based,
    "none": lambda *_: RunToEnd(),
}
