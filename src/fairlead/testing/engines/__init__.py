"""Conformance suite for engines: run each of CHECKS on a fresh Rig."""

from fairlead.testing.engines.bench import Rig
from fairlead.testing.engines.suite import CHECKS

__all__ = ["CHECKS", "Rig"]
