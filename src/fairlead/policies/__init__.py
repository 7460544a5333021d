"""Policies: one module each, registered by entry point."""
