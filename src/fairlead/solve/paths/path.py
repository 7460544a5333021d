"""The path that a water-filling climbs: the levels of all classes at each theta."""

from typing import Protocol

from fairlead.model.arrays import FloatArray


class Path(Protocol):
    """The levels that classes should stand at when the water stands at ``theta``.

    Levels are 0 at 0, continuous and never fall; none exceeds its class's cap. A policy is its
    path: max-min raises everyone alike, a hierarchy hands a tenant's rise to its jobs, finish-
    time fairness gives what each job needs for one common ratio.
    """

    @property
    def top(self) -> float:
        """The theta from which on nobody rises."""
        ...

    def level(self, theta: float) -> FloatArray:
        """Return classes → level of a member at ``theta``."""
        ...

    def rate(self, theta: float) -> FloatArray:
        """Return classes → growth of the level just above ``theta``."""
        ...

    def within(self, cap: FloatArray) -> "Path":
        """Return the path on which no class exceeds these caps, none below its level so far.

        A class that has been stopped has its level for a cap; what it would have gained goes
        where the policy says.
        """
        ...
