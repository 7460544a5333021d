"""Devices reserved for long gangs that cannot all run beside each other."""
