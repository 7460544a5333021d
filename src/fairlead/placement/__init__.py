"""On which devices: keep jobs where they are, larger gangs first, each on few nodes."""

from fairlead.placement.consolidate import place

__all__ = ["place"]
