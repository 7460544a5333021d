"""Placement on devices: jobs stay where they are, larger gangs first, each on few nodes."""

from fairlead.placement.consolidate import place_gangs, plan_moves
from fairlead.placement.exchange import exchange_devices
from fairlead.placement.transition import held_devices, plan_transition, running_leases
from fairlead.placement.units import plan_unit_moves

__all__ = [
    "exchange_devices",
    "held_devices",
    "place_gangs",
    "plan_moves",
    "plan_transition",
    "plan_unit_moves",
    "running_leases",
]
