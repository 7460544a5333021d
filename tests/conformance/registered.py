"""Registered mechanisms that place jobs on devices, by name."""

from dataclasses import fields
from typing import Any

from fairlead.mechanisms.factory import create_mechanism
from fairlead.registry import available

REALISES = {
    "shares": "max-min",
    "gavel": "max-min",
    "units": "max-min:packed",
    "tenants": "oef",
    "rounding": "oef",
}
"""mechanisms that realise a policy's shares → such a policy"""
FLUID = {"ideal"}
NAMES = [name for name in available("mechanisms") if name not in FLUID]


def make_mechanism(name: str) -> Any:
    """Return a new mechanism of this name."""
    constructor = available("mechanisms")[name].load()
    if "policy" in {field.name for field in fields(constructor)}:
        return create_mechanism(REALISES[name], name)
    return create_mechanism(name)
