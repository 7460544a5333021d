"""Simulations that users of the server run: each in a process of its own, with limits."""
