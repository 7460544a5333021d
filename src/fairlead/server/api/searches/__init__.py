"""Hyperparameter searches: their list, and the learning curves of their trials."""
