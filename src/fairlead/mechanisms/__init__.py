"""Mechanisms: plan the next round; one module or package per mechanism, found by entry point."""
