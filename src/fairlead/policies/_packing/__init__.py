"""Shared by policies over units: packed pairs and placements of gangs."""
