"""Optimal vertex of the program over options."""

from dataclasses import dataclass

from fairlead.model.arrays import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class OptionVertex:
    """An optimal vertex; duals have the sign of prices, all at least 0 up to rounding."""

    rise: float
    time: FloatArray
    """options → total time"""
    prices: FloatArray
    """resources → price of a device"""
    level_price: FloatArray
    """classes → price of its level"""
    time_price: FloatArray
    """classes → price of a member's time"""
    extra: FloatArray
    """extra rows → price; positive where the upper bound holds, negative for the lower"""
    surplus: FloatArray
    """options → what its use costs more than it brings"""
    scale: float
    """worth of a unit of rise in these prices"""
