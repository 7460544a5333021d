"""Fairlead: a fair, heterogeneity-aware scheduler for shared GPU clusters."""

from importlib import import_module

from fairlead.version import __version__

TYPE_CHECKING = False
"""as in ``typing``, which takes longer to load than all else that a command needs at its start"""
if TYPE_CHECKING:  # loaded at first use: training processes import fairlead.job only
    from typing import Any

    from fairlead.notebook import compare, simulate
    from fairlead.tuning.api import tune

__all__ = ["__version__", "compare", "simulate", "tune"]


def __getattr__(name: str) -> "Any":
    if name in ("compare", "simulate"):
        return getattr(import_module("fairlead.notebook"), name)
    if name == "tune":
        return import_module("fairlead.tuning.api").tune
    raise AttributeError(f"module 'fairlead' has no attribute {name!r}")
