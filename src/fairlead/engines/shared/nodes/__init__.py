"""Persistent node registry, node status and node-local files of jobs."""
