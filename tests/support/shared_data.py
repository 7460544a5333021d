"""Shared reference data beside the project, for tests that compare with it."""

import os
from pathlib import Path

import pytest


def _shared_path() -> Path | None:
    configured = os.environ.get("FAIRLEAD_SHARED")
    path = Path(configured) if configured else Path(__file__).parents[2].parent / "shared"
    return path if path.is_dir() else None


SHARED = _shared_path()
needs_shared = pytest.mark.skipif(
    SHARED is None,
    reason="the reference data is neither at ../shared nor at $FAIRLEAD_SHARED",
)


def shared(path: str) -> Path:
    """Return the path of a reference file; only for tests marked ``needs_shared``."""
    assert SHARED is not None
    return SHARED / path
