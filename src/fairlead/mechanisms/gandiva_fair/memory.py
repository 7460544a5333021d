"""Memory of Gandiva_fair between quanta, as columns."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import NO_INTS, BoolArray, FloatArray, IntArray

NOWHERE = -1
"""instead of a site: the job has no home yet"""
SPREAD = -2
"""instead of a site: the gang spans sites, which ``spread`` lists"""

AT, SELLER, BUYER, FAST, SLOW, DEVICES, PRICE, SECOND = range(8)
"""columns of a trade: when, the tenants, the accelerators, fast devices given, slow ones for each
(negative in the ledger: the trade was undone), whose bid set the price (-1: none)"""
TRADE_COLUMNS = 8
LEDGER_ROWS = 4096
"""greatest number of entries in the ledger"""


@dataclass(frozen=True, slots=True, eq=False)
class FairMemory:
    """The homes and passes of jobs, and the trades of tenants.

    A *site* is a node's devices of one accelerator, numbered by node, then by accelerator.
    """

    job: IntArray
    home: IntArray
    """jobs → site, NOWHERE or SPREAD"""
    passes: FloatArray
    asked: FloatArray
    """jobs → its tickets by Eq. 3, in devices; 0 without a home"""
    tickets: FloatArray
    """jobs → the tickets that its home can serve"""
    tenant: IntArray
    received_s: FloatArray
    """jobs × accelerators → seconds for which it has held devices"""
    spread: IntArray
    """rows of (job, site, devices): what gangs that span sites need"""
    aggregate: FloatArray
    """sites → pass of its small jobs together; NaN where no spanning gang competes"""
    seen: BoolArray
    """profiles × accelerators → a job of the profile has run there, so its speed is known"""
    starts_at: float
    """start of the last plan"""
    due: FloatArray
    """tenants × accelerators → devices that it is due since then"""
    owed: FloatArray
    """tenants × accelerators → devices × quanta that it was due and has not had"""
    trades: FloatArray
    """the current trades, oldest first"""
    ledger: FloatArray
    """trades made and undone, oldest first"""

    @classmethod
    def empty(cls) -> "FairMemory":
        """Return the memory before the first job."""
        none, no_trades = np.zeros(0), np.zeros((0, TRADE_COLUMNS))
        return cls(
            job=NO_INTS,
            home=NO_INTS,
            passes=none,
            asked=none,  # lang: ok
            tickets=none,
            tenant=NO_INTS,
            received_s=np.zeros((0, 0)),
            spread=np.zeros((0, 3), dtype=np.int64),
            aggregate=none,
            seen=np.zeros((0, 0), dtype=bool),
            starts_at=0.0,
            due=np.zeros((0, 0)),
            owed=np.zeros((0, 0)),
            trades=no_trades,
            ledger=no_trades,
        )
