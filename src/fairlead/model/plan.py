"""Plans: the leases that end and start in the next round."""

import numpy as np

from fairlead.model.arrays import IntArray
from fairlead.model.lease import Placements
from fairlead.model.value import value

ABSENT = -1
"""in place of a row, job, lease or accelerator: none"""


@value
class Plan:
    """The leases that end and the placements that start; all other leases last until ``until``.

    ``stop`` lists leases of the snapshot, ``start`` jobs or copies with their devices: idle
    devices, or devices of stopped leases. Jobs placed on the same devices are packed into one
    unit. A job that moves is stopped and started. The mechanism decides again at ``wake_at``.
    """

    stop: IntArray
    start: Placements
    until: float
    wake_at: float
    reallocated: bool = False
    """whether the policy computed new shares"""


def empty_holders(n_devices: int) -> IntArray:
    """Return one lane of holders in which every device is idle."""
    return np.full((1, n_devices), ABSENT, dtype=np.int64)
