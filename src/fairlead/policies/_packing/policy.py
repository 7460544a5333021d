"""The options of policies whose shares may be those of units."""

from dataclasses import dataclass
from typing import ClassVar

from fairlead.model.errors import UsageError
from fairlead.model.snapshot import Snapshot
from fairlead.policies._packing.table import UnitRules
from fairlead.policies.rules.quotas import any_quota


@dataclass(frozen=True)
class UnitPolicy:
    """A policy over jobs alone or, on demand, over packed pairs and over placements of gangs.

    ``agnostic`` ignores what accelerators are. ``packed`` lets two jobs share devices where that
    pays; ``placement`` tells gangs on one node from gangs spread over several.
    """

    takes_alternatives: ClassVar[bool] = True
    agnostic: bool = False
    packed: bool = False
    placement: bool = False

    def __post_init__(self) -> None:
        if self.agnostic and self.packed:
            raise UsageError("agnostic,packed: which jobs to pack is chosen by measured speeds")
        if self.agnostic and self.placement:
            raise UsageError("agnostic,placement: placements differ by their speeds only")

    @property
    def realised_by(self) -> str:
        """The mechanism for the rows and columns of these shares."""
        return "units" if self.packed or self.placement else "shares"

    @property
    def _rules(self) -> UnitRules:
        return UnitRules(self.packed, self.placement)

    def _needs_unit_program(self, snap: Snapshot) -> bool:
        """Tell whether it needs the program over units.

        That is for units proper, for quotas, and where a job needs other numbers of devices on
        other accelerators.
        """
        return self.packed or self.placement or snap.has_per_accelerator_gangs or any_quota(snap)
