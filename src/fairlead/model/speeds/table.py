"""How fast jobs run: a function of the workload, its devices, their placement and partners."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.errors import InputError
from fairlead.model.job import Job

Placement = Literal["consolidated", "spread"]


class SpeedKey(NamedTuple):
    """What a measured speed belongs to: one gang of one workload on one accelerator.

    ``partner`` is the workload packed onto the same devices, None when the job runs alone.
    """

    workload: str
    gang: int
    accelerator: str
    placement: Placement = "consolidated"
    partner: str | None = None


class PairSpeeds:
    """How fast each workload of a table runs with each other one on the same devices."""

    def __init__(self, table: "SpeedTable", accelerators: tuple[str, ...]) -> None:
        self._measures_gangs = table.has_gang_speeds
        self.index = {workload: i for i, workload in enumerate(table.workloads)}
        self._measured: dict[tuple[int, Placement], FloatArray] = {}
        column = {name: j for j, name in enumerate(accelerators)}
        shape = (len(self.index), len(self.index), len(accelerators))
        for key, speed in table.steps_per_s.items():
            if key.partner is None or key.accelerator not in column:
                continue
            kind = (key.gang, key.placement)
            if kind not in self._measured:
                self._measured[kind] = np.full(shape, np.nan)
            if key.partner in self.index:
                place = self.index[key.workload], self.index[key.partner], column[key.accelerator]
                self._measured[kind][place] = speed
        self._missing = np.full(shape, np.nan)
        self._whole: dict[tuple[int, Placement], FloatArray] = {}

    def block(self, gang: int, placement: Placement) -> FloatArray:
        """Return workloads × partners × accelerators → steps per second of the former.

        As for a job alone, what was not measured spread is as fast as consolidated, and a table
        without gangs above 1 scales by the gang; otherwise a pair that was not measured does not
        fit together.
        """
        found = self._whole.get((gang, placement))
        if found is None:
            found = self._measured.get((gang, placement), self._missing)
            if placement == "spread":
                consolidated = self._measured.get((gang, "consolidated"), self._missing)
                found = np.where(np.isnan(found), consolidated, found)
            if gang > 1 and not self._measures_gangs:
                single = gang * self._measured.get((1, "consolidated"), self._missing)
                found = np.where(np.isnan(found), single, found)
            found = np.nan_to_num(found, nan=0.0)
            self._whole[gang, placement] = found
        return found


@dataclass(frozen=True)
class SpeedTable:
    """Measured steps per second of whole jobs; 0 means that it does not run there.

    A spread gang without a measurement of its own runs at its consolidated speed. A table that
    measures no gang above 1 says nothing about scaling; a gang then runs at gang times the
    speed of one device.
    """

    steps_per_s: Mapping[SpeedKey, float]
    source: str = ""
    assumed: float | None = None
    """speed of one device for workloads that were never measured; None: they are refused"""
    _rows: dict[tuple[str, int, tuple[str, ...]], FloatArray] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _pairs: dict[tuple[str, ...], PairSpeeds] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @cached_property
    def workloads(self) -> tuple[str, ...]:
        """The workloads measured, in the table's order."""
        return tuple(dict.fromkeys(key.workload for key in self.steps_per_s))

    @cached_property
    def accelerators(self) -> tuple[str, ...]:
        """The accelerators measured, in the table's order."""
        return tuple(dict.fromkeys(key.accelerator for key in self.steps_per_s))

    @cached_property
    def gangs(self) -> Mapping[str, tuple[int, ...]]:
        """workload → the gangs measured for it, ascending."""
        found: dict[str, set[int]] = {}
        for key in self.steps_per_s:
            found.setdefault(key.workload, set()).add(key.gang)
        return {workload: tuple(sorted(gangs)) for workload, gangs in found.items()}

    @cached_property
    def has_gang_speeds(self) -> bool:
        """Whether any gang above 1 was measured."""
        return any(key.gang > 1 for key in self.steps_per_s)

    def speed(
        self,
        workload: str,
        devices: Iterable[str],
        *,
        placement: Placement = "consolidated",
        partner: str | None = None,
    ) -> float:
        """Return the steps per second of a job whose gang holds these accelerators.

        A gang of mixed accelerators runs at the speed of its slowest member.
        """
        held = tuple(devices)
        kinds = dict.fromkeys(held)
        if len(kinds) == 1:
            return self._one(workload, len(held), held[0], placement, partner)
        return min(self.member_speed(workload, len(held), a, placement, partner) for a in kinds)

    def member_speed(
        self,
        workload: str,
        gang: int,
        accelerator: str,
        placement: Placement = "consolidated",
        partner: str | None = None,
    ) -> float:
        """Return the steps per second of a gang that has this accelerator as its slowest member.

        Where the gang was not measured on this accelerator, which may be because there are too
        few devices of it, the nearest smaller gang that was is scaled as it scales on the
        others, and in proportion to the gang where nobody knows.
        """
        found = self._one(workload, gang, accelerator, placement, partner)
        if found > 0.0 or SpeedKey(workload, gang, accelerator) in self.steps_per_s:
            return found
        smaller = (g for g in reversed(self.gangs.get(workload, ())) if g < gang)
        for nearest in smaller:
            found = self._one(workload, nearest, accelerator, placement, partner)
            if found > 0.0:
                return found * self._scaling(workload, nearest, gang)
        return 0.0

    def _scaling(self, workload: str, smaller: int, larger: int) -> float:
        """Return how much faster the larger gang is, on average over accelerators with both."""
        ratios = [
            self.steps_per_s[SpeedKey(workload, larger, a)] / speed
            for a in self.accelerators
            if (speed := self.steps_per_s.get(SpeedKey(workload, smaller, a), 0.0)) > 0.0
            and self.steps_per_s.get(SpeedKey(workload, larger, a), 0.0) > 0.0
        ]
        return sum(ratios) / len(ratios) if ratios else larger / smaller

    def row(self, workload: str, gang: int, accelerators: tuple[str, ...]) -> FloatArray:
        """Return accelerators → steps per second of a gang alone and consolidated on each.

        Raises InputError when the table knows the workload or the gang on none of them.
        """
        key = (workload, gang, accelerators)
        found = self._rows.get(key)
        if found is None:
            self.require(workload, gang)
            found = np.array([self.speed(workload, (a,) * gang) for a in accelerators])
            found.flags.writeable = False
            self._rows[key] = found
        return found

    def pairs(self, accelerators: tuple[str, ...]) -> PairSpeeds:
        """Return the speeds of packed workloads on these accelerators, as arrays."""
        pairs = self._pairs.get(accelerators)
        if pairs is None:
            pairs = self._pairs[accelerators] = PairSpeeds(self, accelerators)
        return pairs

    def row_of(self, job: Job, accelerators: tuple[str, ...]) -> FloatArray:
        """Return accelerators → steps per second of a job with the devices it needs on each."""
        found = self.row(job.workload, job.gang, accelerators)
        if not job.gangs:
            return found
        found = found.copy()
        for j, accelerator in enumerate(accelerators):
            if accelerator in job.gangs:
                gang = job.gangs[accelerator]
                try:
                    self.require(job.workload, gang)
                except InputError as error:
                    raise InputError(error.problem, fix=error.fix, field="accelerators") from None
                found[j] = self.speed(job.workload, (accelerator,) * gang)
        return found

    def require(self, workload: str, gang: int) -> None:
        """Raise InputError unless the table can tell this gang's speed somewhere."""
        gangs = self.gangs.get(workload)
        if gangs is None and self.assumed is not None:
            return
        if gangs is None:
            some = f"one of its {len(self.workloads)} workloads (e.g. {self.workloads[0]!r})"
            if not workload:
                raise InputError(
                    f"none is given, and only the speeds table{self._named} knows speeds",
                    fix=f"give {some}",
                    field="workload",
                )
            raise InputError(
                f"the speeds table{self._named} has no workload {workload!r}",
                fix=f"use {some} or add rows for it",
                field="workload",
            )
        if gang not in gangs and self.has_gang_speeds:
            raise InputError(
                f"the speeds table{self._named} has no gang of {gang} for {workload!r}",
                fix=f"use one of {', '.join(map(str, gangs))} or add rows for it",
                field="gang",
            )

    @property
    def _named(self) -> str:
        return f" {self.source}" if self.source else ""

    def _one(
        self, workload: str, gang: int, accelerator: str, placement: Placement, partner: str | None
    ) -> float:
        known = self.steps_per_s
        if self.assumed is not None and workload not in self.gangs:
            return gang * self.assumed if partner is None else 0.0
        found = known.get(SpeedKey(workload, gang, accelerator, placement, partner))
        if found is None and placement == "spread":
            found = known.get(SpeedKey(workload, gang, accelerator, "consolidated", partner))
        if found is None and gang > 1 and not self.has_gang_speeds:
            found = gang * known.get(
                SpeedKey(workload, 1, accelerator, "consolidated", partner), 0.0
            )
        return found if found is not None else 0.0
