"""Gandiva: time slices, packing, migration and growth by what jobs measure (OSDI 2018)."""

from fairlead.mechanisms.gandiva.mechanism import Gandiva

__all__ = ["Gandiva"]
