"""Copies of one job that train at once: their items, their average, and its commit."""
