"""Gandiva_fair (EuroSys 2020): tickets, split stride, load balancing, trading."""

from fairlead.mechanisms.gandiva_fair.mechanism import GandivaFair

__all__ = ["GandivaFair"]
