"""Engines: start and stop processes on one type of cluster each, behind one protocol."""
