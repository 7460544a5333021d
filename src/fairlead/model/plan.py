"""What the next round changes."""

import numpy as np

from fairlead.model.arrays import IntArray
from fairlead.model.lease import Placements
from fairlead.model.value import value

NOBODY = -1


@value
class Plan:
    """What ends and what starts when the plan does; all else that runs goes on until ``until``.

    ``stop`` lists leases of the snapshot, ``start`` jobs or copies with their devices: idle ones,
    or such as the stopped leases give up. Jobs placed on the same devices are packed into one
    unit. A job that moves is stopped and started. The mechanism wants to decide again at
    ``wake_at``.
    """

    stop: IntArray
    start: Placements
    until: float
    wake_at: float
    reallocated: bool = False
    """whether a policy was asked for new shares"""


def nobody(n_devices: int) -> IntArray:
    """Return holdings of one lane in which every device is idle."""
    return np.full((1, n_devices), NOBODY, dtype=np.int64)
