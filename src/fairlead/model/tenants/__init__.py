"""Tenants: device limits and the decay of past usage."""
