"""Hadar: prices, an auction of devices, mixed gangs; HadarE: copies of a job on many nodes."""

from fairlead.mechanisms.hadar.hadare import HadarE
from fairlead.mechanisms.hadar.mechanism import Hadar

__all__ = ["Hadar", "HadarE"]
