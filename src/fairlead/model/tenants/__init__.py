"""Tenants: their tree, validation, device limits and the decay of past usage."""
