"""Limits the steps of a copy to those that neither a checkpoint nor another copy has."""

from collections.abc import Mapping

from fairlead.core.copies import LAST_STEPS
from fairlead.live.leases.open_leases import OpenLease


def limited_part(
    lease: OpenLease, total_steps: int, saved_steps: int, leases: Mapping[int, OpenLease]
) -> float:
    """Return the steps of a copy that is about to start; all copies together leave some.

    The plan may not have known all ``saved_steps``: those of lost leases are counted late.
    """
    others = (one for one in leases.values() if one.job == lease.job and one.copy)
    divided = sum(one.max_steps for one in others if one is not lease)
    return max(min(lease.max_steps, total_steps - LAST_STEPS - saved_steps - divided), 0.0)
