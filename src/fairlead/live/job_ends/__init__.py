"""Consequences of the end of a job: dependent jobs and notifications."""
