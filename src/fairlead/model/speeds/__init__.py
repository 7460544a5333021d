"""Speeds of jobs: the table of measured speeds and the arrays of packed pairs."""
