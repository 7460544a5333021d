"""Shared by round-based mechanisms: deficits, candidates, selection of jobs and units."""
