"""Transparent suspend: the driver moves the device memory of unmodified processes to the host."""
