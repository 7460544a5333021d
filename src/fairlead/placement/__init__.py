"""On which devices: keep jobs where they are, larger gangs first, each on few nodes."""

from fairlead.placement.consolidate import move, place
from fairlead.placement.transition import towards
from fairlead.placement.units import move_units

__all__ = ["move", "move_units", "place", "towards"]
