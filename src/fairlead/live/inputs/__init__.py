"""Inputs of the live driver: waiting, joined, handled in pieces, and persisted in batches."""
