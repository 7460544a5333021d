"""Fairlead's own policy: the most relative progress per device, and a promised finish time."""

from fairlead.policies.fairlead.policy import Fairlead

__all__ = ["Fairlead"]
