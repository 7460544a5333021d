"""Tables of rounds in which jobs of one device take turns, for the compiled loop over them."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from fairlead.mechanisms._tickets.device_turns import DeviceTurns
from fairlead.model.arrays import FloatArray, IntArray

AT, LAST_AT, ROUND_S, NEXT_EVENT_AT, RESTORE_COST_S, ENDED_AT, _CLOCK = range(7)
"""times: start of the next and of the last round, length of a round, the next event that is no
completion, the cost of a restart, and the last change of a lease"""
N_FREE, NEXT_EPOCH, PLANNED_EPOCH, ROUNDS, EARLY, _COUNTS = range(6)
"""counts: free slots, the epochs of the next lease and of the last round's first, rounds taken,
and jobs without their first steps"""
COUNTED_AT, HELD_FROM, PROGRESS_FROM, RATE, DONE, TOTAL, FINISH_AT, SAVED, STEPS = range(9)
STARTED_AT, FIRST_STEPS_AT, UTILIZATION, MEMORY, MEASURED_AT, MEASURED_RATE, _NUMBERS = range(
    9, 16
)
"""numbers of a row, as JobTable, LeaseTable and JobProgress call them"""
DEVICE, LEASE, FIRST, PREEMPTIONS, MIGRATIONS, MEASURED_LEASE, _INTS = range(7)
RECEIVED, DEVICE_S, SPEED, _TIMES = range(4)
MAX_ACCELERATORS = 7
"""numpy adds up more in another order"""


@dataclass(slots=True, eq=False)
class TurnRun:
    """The active jobs, row by row, while they take turns; the compiled loop changes it.

    A row is what the scheduler and the virtual cluster know of a job and of its lease.
    """

    clock: FloatArray
    counts: IntArray
    free: IntArray
    """free slots, the next one last, with room for those of all leases"""
    numbers: FloatArray
    """columns × rows"""
    ints: IntArray
    """columns × rows"""
    times: FloatArray
    """received, device time and steps per second × rows × accelerators"""
    accelerator_of: IntArray
    """devices → accelerator"""

    @classmethod
    def of(cls, rows: int, accelerator_of: IntArray, accelerators: int) -> "TurnRun":
        """Return empty tables with this number of rows."""
        return cls(
            np.zeros(_CLOCK),
            np.zeros(_COUNTS, dtype=np.int64),
            np.zeros(0, dtype=np.int64),
            np.empty((_NUMBERS, rows)),
            np.empty((_INTS, rows), dtype=np.int64),
            np.empty((_TIMES, rows, accelerators)),
            accelerator_of,
        )

    def arguments(
        self, turns: DeviceTurns, sites: IntArray | None = None
    ) -> tuple[FloatArray | IntArray | None, ...]:
        """Return the arguments that the compiled loops begin with."""
        return (
            *(self.clock, self.counts, self.free, self.numbers, self.ints, self.times),
            *(self.accelerator_of, *turns.places, sites),
        )


@runtime_checkable
class TakesRounds(Protocol):
    """Turns of which several rounds can be taken at once, where the compiled loop was built."""

    def take_rounds(self, run: TurnRun) -> int:
        """Take rounds until something else happens and return how many, with the same result."""
        ...

    @property
    def memory(self) -> object:
        """The mechanism's memory after the last round."""
        ...
