"""Shared by queueing mechanisms: serve jobs in an order, match jobs to slots."""
