"""Fairness audits, explanations and advice about allocations."""
