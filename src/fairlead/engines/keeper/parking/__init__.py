"""Parking: processes that stay without their device and continue under a later lease."""
