"""Policies: one module each, listed in the registry."""
