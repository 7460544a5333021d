"""Mechanisms: plan the next round; one module or package each, listed in the registry."""
