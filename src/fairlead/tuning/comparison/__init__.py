"""Comparison of search strategies under scheduling policies, on recorded learning curves."""
