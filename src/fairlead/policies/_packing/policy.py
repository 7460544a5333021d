"""Base of policies whose shares may be those of units."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from fairlead.model.capabilities import Capabilities
from fairlead.model.errors import UsageError
from fairlead.model.snapshot import Snapshot
from fairlead.policies.rules.quotas import any_quota

if TYPE_CHECKING:
    from fairlead.policies._packing.table import UnitRules


@dataclass(frozen=True)
class UnitPolicy:
    """A policy over jobs alone or, by option, over packed pairs and placements of gangs.

    ``agnostic`` ignores the differences between accelerators. ``packed`` lets two jobs share
    devices where that pays; ``placement`` distinguishes gangs on one node from spread gangs.
    """

    alone: ClassVar[Capabilities] = Capabilities(per_accelerator_gangs=True)
    """capabilities of the policy over jobs alone"""
    agnostic: bool = False
    """ignore the differences between accelerators"""
    packed: bool = False
    """let two jobs share devices where that pays"""
    placement: bool = False
    """distinguish gangs on one node from gangs spread over several"""

    def __post_init__(self) -> None:
        if self.agnostic and self.packed:
            raise UsageError("agnostic,packed: cannot be combined: packing needs measured speeds")
        if self.agnostic and self.placement:
            raise UsageError(
                "agnostic,placement: cannot be combined: placements differ by speed only"
            )

    @property
    def capabilities(self) -> Capabilities:
        """The policy's capabilities; shares of units and placements need the units mechanism."""
        if self.packed or self.placement:
            return replace(self.alone, mechanism="units", packs=self.packed)
        if self.agnostic and self.alone.trades_accelerators:
            return replace(self.alone, trades_accelerators=False)  # it takes all for equal
        return self.alone

    @property
    def _rules(self) -> "UnitRules":
        from fairlead.policies._packing.table import UnitRules  # noqa: PLC0415  # only units need it

        return UnitRules(self.packed, self.placement)

    def _needs_unit_program(self, snap: Snapshot) -> bool:
        """Return whether the snapshot needs the program over units.

        It does for packed pairs and placements, for quotas, and where gangs differ by
        accelerator.
        """
        return self.packed or self.placement or snap.has_per_accelerator_gangs or any_quota(snap)
