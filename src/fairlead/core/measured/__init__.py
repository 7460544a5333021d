"""Measurements that the scheduler keeps for its mechanisms."""
