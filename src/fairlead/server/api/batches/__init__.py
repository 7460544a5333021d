"""Requests for many jobs: submit them, or change them, in one transaction."""
