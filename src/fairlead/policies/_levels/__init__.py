"""Shared by policies that raise levels: max-min, paths, tenant hierarchies."""
