"""Conformance suite for mechanisms: run each of CHECKS on a constructor."""

from fairlead.testing.mechanisms.suite import CHECKS

__all__ = ["CHECKS"]
