"""Readers, writers and converters of job traces and cluster logs."""
