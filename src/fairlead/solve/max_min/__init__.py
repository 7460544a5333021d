"""Exact lexicographic max-min for few distinct classes: water-filling by simplex, warm start."""
