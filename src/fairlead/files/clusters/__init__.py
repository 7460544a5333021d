"""Readers and writers of cluster descriptions and node events."""
