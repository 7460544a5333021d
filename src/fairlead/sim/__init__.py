"""Simulation of traces on a virtual cluster with the real scheduler; metrics and reports."""
