"""Hadar's dual prices of a node's devices for a round (Eqs. 5-7)."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """The bounds between which the price of each accelerator moves.

    ``least`` and ``most`` are U_min and U_max of Eqs. 6-7: accelerators → utility per device.
    """

    least: FloatArray
    most: FloatArray

    def price(self, accelerator: int, held: float, of: float) -> float:
        """Return Eq. 5: U_min when no device of the node is held, U_max when all are."""
        least, most = float(self.least[accelerator]), float(self.most[accelerator])
        return float(least * (most / least) ** (held / of))

    def rising(self, accelerator: int, of: int) -> list[float]:
        """Return devices left, from 1 on → ``price`` of one on a node with ``of`` in all."""
        least, most = float(self.least[accelerator]), float(self.most[accelerator])
        steep = most / least
        return [float(least * steep ** ((of - left) / of)) for left in range(1, of + 1)]


@dataclass(frozen=True, slots=True, eq=False)
class Bidders:
    """The jobs' terms of Eqs. 6 and 7; the tables are jobs × accelerators."""

    gang: IntArray
    can_use: BoolArray
    best: FloatArray
    """utility when the job runs through on devices of this accelerator from now on"""
    at_horizon: FloatArray
    """jobs → utility when it ends only at the horizon T"""
    slots: FloatArray
    """jobs → t_max: rounds that the steps left take on the slowest accelerator it can use"""

    def only(self, rows: IntArray) -> "Bidders":
        """Return some of the bidders."""
        return Bidders(
            self.gang[rows],
            self.can_use[rows],
            self.best[rows],
            self.at_horizon[rows],
            self.slots[rows],
        )

    def prices(self, eta: float) -> Prices:
        """Return the bounds that these jobs set; 1 and 1 for what none of them can use.

        Eq. 6 is read by accelerator, as its text has it: the greatest utility per device that
        any job can have *there*. W_j, the devices a job asks for, is its gang.
        """
        per_device = np.where(self.can_use, self.best / self.gang[:, None], 0.0)
        most = per_device.max(axis=0, initial=0.0)
        worst = (self.at_horizon / (self.slots * self.gang))[:, None]
        least = np.where(self.can_use, worst, np.inf).min(axis=0, initial=np.inf) / (4.0 * eta)
        used = most > 0.0
        return Prices(np.where(used, least, 1.0), np.where(used, most, 1.0))


def horizon_s(gang: IntArray, slowest_s: FloatArray, devices: int) -> float:
    """Return T - now: by then all jobs are done under any schedule that leaves no device idle.

    It is the longest job's time plus all device time over all devices, every job on the
    slowest accelerator that it can use (Graham's bound for list schedules).
    """
    return float(slowest_s.max(initial=0.0) + (gang * slowest_s).sum() / max(devices, 1))
