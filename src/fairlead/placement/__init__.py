"""On which devices: keep jobs where they are, larger gangs first, each on few nodes."""

from fairlead.placement.consolidate import move, place
from fairlead.placement.transition import held_devices, towards
from fairlead.placement.units import plan_unit_moves

__all__ = ["held_devices", "move", "place", "plan_unit_moves", "towards"]
