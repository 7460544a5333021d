"""Reports of a comparison: one HTML page and two CSV tables."""
