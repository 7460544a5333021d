"""Explanation of a job's or tenant's speed, with changes that would raise it."""
