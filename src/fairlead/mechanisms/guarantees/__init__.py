"""Guarantees of tenants in every round, under all mechanisms."""

from fairlead.mechanisms.guarantees.enforcement import guaranteed_plan, guaranteed_refill

__all__ = ["guaranteed_plan", "guaranteed_refill"]
