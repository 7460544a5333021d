"""Checkpoints that a job takes over from another job of its tenant."""
