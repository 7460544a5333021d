"""Levels, shared by the max-min family: classes, paths, tenant hierarchies."""
