"""Exact lexicographic max-min for many distinct classes: price estimates and small programs."""
