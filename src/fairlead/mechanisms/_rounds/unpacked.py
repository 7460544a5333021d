"""The policy without packing, for mechanisms that compare both."""

from dataclasses import is_dataclass, replace

from fairlead.mechanisms.base import RealisesPolicy
from fairlead.policies._packing.policy import UnitPolicy
from fairlead.policies.base import Policy


def without_packing(policy: Policy) -> Policy | None:
    """Return the policy without its option ``packed``; None if that is not set.

    A policy around another one (priorities) stays around it.
    """
    if isinstance(policy, UnitPolicy):
        return replace(policy, packed=False) if policy.packed else None
    if not isinstance(policy, RealisesPolicy) or not is_dataclass(policy):
        return None
    alone = without_packing(policy.policy)
    return None if alone is None else replace(policy, policy=alone)
