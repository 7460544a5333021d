"""Speed tables: the speed of a job by workload, devices, placement and partner."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.errors import InputError
from fairlead.model.job import Job
from fairlead.model.speeds.key import Consolidation, SpeedKey
from fairlead.model.speeds.pairs import PairSpeeds

__all__ = ["Consolidation", "SpeedKey", "SpeedTable"]


@dataclass(frozen=True)
class SpeedTable:
    """Measured steps per second of whole jobs; 0 where a job does not run.

    A spread gang without a measurement runs at its consolidated speed. In a table without gangs
    above 1 a gang runs at gang times the speed of one device.
    """

    steps_per_s: Mapping[SpeedKey, float]
    source: str = ""
    assumed: float | None = None
    """speed of one device for workloads without measurements; None: such workloads are rejected"""
    _rows: dict[tuple[str, int, tuple[str, ...]], FloatArray] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _pairs: dict[tuple[str, ...], PairSpeeds] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @cached_property
    def workloads(self) -> tuple[str, ...]:
        """The measured workloads, in the table's order."""
        return tuple(dict.fromkeys(key.workload for key in self.steps_per_s))

    @cached_property
    def accelerators(self) -> tuple[str, ...]:
        """The measured accelerators, in the table's order."""
        return tuple(dict.fromkeys(key.accelerator for key in self.steps_per_s))

    @cached_property
    def gangs(self) -> Mapping[str, tuple[int, ...]]:
        """workload → its measured gangs, ascending."""
        gangs: dict[str, set[int]] = {}
        for key in self.steps_per_s:
            gangs.setdefault(key.workload, set()).add(key.gang)
        return {workload: tuple(sorted(sizes)) for workload, sizes in gangs.items()}

    @cached_property
    def has_gang_speeds(self) -> bool:
        """Whether any gang above 1 was measured."""
        return any(key.gang > 1 for key in self.steps_per_s)

    def speed(
        self,
        workload: str,
        devices: Iterable[str],
        *,
        placement: Consolidation = "consolidated",
        partner: str | None = None,
    ) -> float:
        """Return the steps per second of a job whose gang holds these accelerators.

        A gang of mixed accelerators runs at the speed of its slowest member.
        """
        held = tuple(devices)
        accelerators = dict.fromkeys(held)
        if len(accelerators) == 1:
            return self._lookup(workload, len(held), held[0], placement, partner)
        return min(
            self.member_speed(workload, len(held), accelerator, placement, partner)
            for accelerator in accelerators
        )

    def member_speed(
        self,
        workload: str,
        gang: int,
        accelerator: str,
        placement: Consolidation = "consolidated",
        partner: str | None = None,
    ) -> float:
        """Return the steps per second of a gang that has this accelerator as its slowest member.

        A gang that was not measured on this accelerator, perhaps because there are too few
        devices of it, is scaled from the nearest smaller measured gang: as that gang scales on
        the other accelerators, or in proportion to the gang where none was measured.
        """
        speed = self._lookup(workload, gang, accelerator, placement, partner)
        if speed > 0.0 or SpeedKey(workload, gang, accelerator) in self.steps_per_s:
            return speed
        smaller = (g for g in reversed(self.gangs.get(workload, ())) if g < gang)
        for nearest in smaller:
            speed = self._lookup(workload, nearest, accelerator, placement, partner)
            if speed > 0.0:
                return speed * self._scaling(workload, nearest, gang)
        return 0.0

    def _scaling(self, workload: str, smaller: int, larger: int) -> float:
        """Return the speed-up of the larger gang, averaged over accelerators with both."""
        ratios = [
            self.steps_per_s[SpeedKey(workload, larger, a)] / speed
            for a in self.accelerators
            if (speed := self.steps_per_s.get(SpeedKey(workload, smaller, a), 0.0)) > 0.0
            and self.steps_per_s.get(SpeedKey(workload, larger, a), 0.0) > 0.0
        ]
        return sum(ratios) / len(ratios) if ratios else larger / smaller

    def row(self, workload: str, gang: int, accelerators: tuple[str, ...]) -> FloatArray:
        """Return accelerators → steps per second of a gang alone and consolidated on each.

        Raises InputError if the table has the workload or the gang on none of them.
        """
        key = (workload, gang, accelerators)
        row = self._rows.get(key)
        if row is None:
            self.require(workload, gang)
            row = np.array([self.speed(workload, (a,) * gang) for a in accelerators])
            row.flags.writeable = False
            self._rows[key] = row
        return row

    def pairs(self, accelerators: tuple[str, ...]) -> PairSpeeds:
        """Return the speeds of packed workloads on these accelerators, as arrays."""
        pairs = self._pairs.get(accelerators)
        if pairs is None:
            pairs = self._pairs[accelerators] = PairSpeeds(
                self.steps_per_s,
                self.workloads,
                accelerators,
                has_gang_speeds=self.has_gang_speeds,
            )
        return pairs

    def row_of(self, job: Job, accelerators: tuple[str, ...]) -> FloatArray:
        """Return accelerators → steps per second of a job with its number of devices on each."""
        row = self.row(job.workload, job.gang, accelerators)
        if not job.gangs:
            return row
        row = row.copy()
        for j, accelerator in enumerate(accelerators):
            if accelerator in job.gangs:
                gang = job.gangs[accelerator]
                try:
                    self.require(job.workload, gang)
                except InputError as error:
                    raise InputError(error.problem, fix=error.fix, field="accelerators") from None
                row[j] = self.speed(job.workload, (accelerator,) * gang)
        return row

    def require(self, workload: str, gang: int) -> None:
        """Raise InputError unless the table has a speed of this gang on some accelerator."""
        gangs = self.gangs.get(workload)
        if gangs is None and self.assumed is not None:
            return
        if gangs is None:
            some = f"one of the {len(self.workloads)} workloads (e.g. {self.workloads[0]!r})"
            if not workload:
                raise InputError(
                    "missing: needed to look up the job's speed",
                    fix=f"expected {some} of the speed table{self._label}",
                    field="workload",
                )
            raise InputError(
                f"no workload {workload!r} in the speed table{self._label}",
                fix=f"expected {some}, or add rows for it",
                field="workload",
            )
        if gang not in gangs and self.has_gang_speeds:
            raise InputError(
                f"no gang of {gang} for {workload!r} in the speed table{self._label}",
                fix=f"expected one of {', '.join(map(str, gangs))}, or add rows for it",
                field="gang",
            )

    @property
    def _label(self) -> str:
        return f" {self.source}" if self.source else ""

    def _lookup(
        self,
        workload: str,
        gang: int,
        accelerator: str,
        placement: Consolidation,
        partner: str | None,
    ) -> float:
        """Return the speed of a gang on one accelerator; 0 where the table has none."""
        speeds = self.steps_per_s
        if self.assumed is not None and workload not in self.gangs:
            return gang * self.assumed if partner is None else 0.0
        speed = speeds.get(SpeedKey(workload, gang, accelerator, placement, partner))
        if speed is None and placement == "spread":
            speed = speeds.get(SpeedKey(workload, gang, accelerator, "consolidated", partner))
        if speed is None and gang > 1 and not self.has_gang_speeds:
            speed = gang * speeds.get(
                SpeedKey(workload, 1, accelerator, "consolidated", partner), 0.0
            )
        return speed if speed is not None else 0.0
