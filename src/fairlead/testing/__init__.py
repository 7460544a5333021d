"""Conformance suites that every extension must pass, for its author to run."""
