"""Speeds that running jobs have measured."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fairlead.model.speeds.key import SpeedKey, scope_of
from fairlead.model.speeds.table import SpeedTable

MAX_MEASURED = 10_000
"""speeds kept; the oldest are dropped first"""


class MeasuredSpeed(NamedTuple):
    """A measured speed and the time of its last change."""

    steps_per_s: float
    at: float


class Selection(NamedTuple):
    """The measured speeds of a tenant, a workload and an accelerator; empty: of all."""

    tenant: str = ""
    workload: str = ""
    accelerator: str = ""

    def includes(self, key: SpeedKey) -> bool:
        """Return whether a measured speed is selected; a job's own by the job's id, too.

        The speed of a packed job belongs to the job and to its partner.
        """
        return self._includes(key) or (
            key.partner is not None and self._includes(key._replace(workload=key.partner))
        )

    def _includes(self, key: SpeedKey) -> bool:
        scope = scope_of(key.workload)
        if scope is None:
            return False
        return (
            self.tenant in ("", scope.tenant)
            and self.workload in ("", scope.workload or scope.job)
            and self.accelerator in ("", key.accelerator)
        )

    def wanted(self) -> dict[str, str]:
        """Return the names that are not empty, by field."""
        return {field: name for field, name in self._asdict().items() if name}

    def text(self) -> str:
        """Return the names for the audit trail."""
        return ", ".join(self.wanted().values()) or "all"


class MeasuredSpeeds:
    """The last measured speed of every workload, gang, accelerator and placement."""

    def __init__(self) -> None:
        self.by_key: dict[SpeedKey, MeasuredSpeed] = {}
        """of jobs alone, in the order of their last change"""
        self.on_one_node: set[SpeedKey] = set()
        """consolidated ones of gangs on one node; the others count for every placement"""
        self.pairs: dict[SpeedKey, MeasuredSpeed] = {}
        """of jobs beside a partner, in the order of their last change"""

    def record(
        self, key: SpeedKey, steps_per_s: float, at: float, *, on_one_node: bool = False
    ) -> None:
        """Replace a speed; where a gang does not fit, it fits in no placement."""
        known = self.by_key if key.partner is None else self.pairs
        known.pop(key, None)
        self.on_one_node.discard(key)
        known[key] = MeasuredSpeed(steps_per_s, at)
        if on_one_node:
            self.on_one_node.add(key)
        if steps_per_s == 0.0:
            known.pop(key._replace(placement="spread"), None)
        if len(known) > MAX_MEASURED:
            oldest = next(iter(known))
            del known[oldest]
            self.on_one_node.discard(oldest)

    def forget(self, selection: Selection) -> None:
        """Drop the selected speeds."""
        for known in (self.by_key, self.pairs):
            for key in [key for key in known if selection.includes(key)]:
                del known[key]
                self.on_one_node.discard(key)

    def count(self, selection: Selection) -> int:
        """Return the number of selected speeds."""
        return sum(map(selection.includes, (*self.by_key, *self.pairs)))

    @property
    def steps_per_s(self) -> Mapping[SpeedKey, float]:
        """The speeds of jobs alone, without their times."""
        return {key: measured.steps_per_s for key, measured in self.by_key.items()}

    def in_place_of(self, beliefs: SpeedTable) -> SpeedTable:
        """Return the beliefs with the measured speeds instead of theirs."""
        pairs = {key: measured.steps_per_s for key, measured in self.pairs.items()}
        return beliefs.with_measured(self.steps_per_s, pairs, frozenset(self.on_one_node))

    def saved_pairs(self) -> list[tuple[str, int, str, float, float, str]]:
        """Return the speeds beside partners in their order, for ``restore_pairs``."""
        return [
            (key.workload, key.gang, key.accelerator, *measured, key.partner)
            for key, measured in self.pairs.items()
            if key.partner is not None
        ]

    def restore_pairs(self, saved: Iterable[tuple[str, int, str, float, float, str]]) -> None:
        """Take the speeds that ``saved_pairs`` returned."""
        self.pairs = {
            SpeedKey(workload, gang, accelerator, partner=partner): MeasuredSpeed(speed, at)
            for workload, gang, accelerator, speed, at, partner in saved
        }

    def saved(self) -> list[tuple[Any, ...]]:
        """Return the speeds of jobs alone in their order, for ``restore``.

        Those that were measured in one placement end with it.
        """
        return [
            (key.workload, key.gang, key.accelerator, *measured, *self._placement(key))
            for key, measured in self.by_key.items()
        ]

    def restore(self, saved: Iterable[Sequence[Any]]) -> None:
        """Take the speeds that ``saved`` returned, here or in an earlier version."""
        self.by_key, self.on_one_node = {}, set()
        for workload, gang, accelerator, steps_per_s, at, *placement in saved:
            key = SpeedKey(workload, gang, accelerator, *placement)
            self.by_key[key] = MeasuredSpeed(steps_per_s, at)
            if placement == ["consolidated"]:
                self.on_one_node.add(key)

    def _placement(self, key: SpeedKey) -> tuple[str, ...]:
        is_known = key.placement == "spread" or key in self.on_one_node
        return (key.placement,) if is_known else ()
