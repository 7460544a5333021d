"""On which devices: keep jobs where they are, larger gangs first, each on few nodes."""

from fairlead.placement.consolidate import move, place
from fairlead.placement.transition import towards

__all__ = ["move", "place", "towards"]
