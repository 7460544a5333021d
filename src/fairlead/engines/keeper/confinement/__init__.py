"""Confinement of jobs on a machine: Unix users, control groups and memory."""
