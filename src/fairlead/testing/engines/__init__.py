"""Conformance suite for engines: run each of CHECKS on a fresh EngineFixture."""

from fairlead.testing.engines.harness import EngineFixture
from fairlead.testing.engines.suite import CHECKS

__all__ = ["CHECKS", "EngineFixture"]
