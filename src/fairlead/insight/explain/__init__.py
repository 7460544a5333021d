"""Explains a job's or tenant's speed and lists changes that would raise it."""
