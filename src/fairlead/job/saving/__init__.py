"""Saving: memory that is taken ahead, files that are mapped, and writes behind training."""
