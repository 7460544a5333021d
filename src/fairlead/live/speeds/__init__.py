"""Measured speeds on a live cluster: reports of jobs, and requests of operators."""
