"""Readers and writers of speed tables: CSV and Gavel's JSON."""
