"""The registered mechanisms that place jobs on devices, by name."""

from dataclasses import fields
from typing import Any

from fairlead.mechanisms.factory import realise
from fairlead.registry import available

REALISES = {
    "shares": "max-min",
    "gavel": "max-min",
    "units": "max-min:packed",
    "tenants": "oef",
    "rounding": "oef",
}
"""mechanisms that realise a policy's shares, each with such a policy"""
FLUID = {"ideal"}
NAMES = [name for name in available("mechanisms") if name not in FLUID]


def made(name: str) -> Any:
    """Return the mechanism of this name."""
    kind = available("mechanisms")[name].load()
    if "policy" in {field.name for field in fields(kind)}:
        return realise(REALISES[name], name)
    return realise(name)
