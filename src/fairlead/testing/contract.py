"""Checks of plans and refills against the snapshot that they were made from."""

from fairlead.placement.contract import (
    ContractViolationError,
    check_plan,
    check_refill,
    require,
)

__all__ = ["ContractViolationError", "check_plan", "check_refill", "require"]
