"""Speed tables: the speed of a job by workload, devices, placement and partner."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.errors import InputError
from fairlead.model.job import Job
from fairlead.model.speeds.estimates import (
    DEFAULT_SPEED,
    DeclaredSpeed,
    Estimator,
    Learner,
    SpeedEstimates,
    declared_speeds,
)
from fairlead.model.speeds.key import (
    Consolidation,
    NamesWorkload,
    SpeedKey,
    SpeedSource,
    plain_workload,
    scope_of,
    scoped_workload,
)
from fairlead.model.speeds.pairs import PairSpeeds
from fairlead.model.speeds.planned import Trials, planned_factor
from fairlead.model.speeds.problems import unlisted_gang, unlisted_workload
from fairlead.model.speeds.spread import EQUAL, PlacementSpeeds

__all__ = ["Consolidation", "SpeedKey", "SpeedSource", "SpeedTable"]


@dataclass(frozen=True)
class SpeedTable:
    """Steps per second of whole jobs; an entry of 0 means that a job does not run there.

    A spread gang without an entry runs at its consolidated speed, until measurements tell them
    apart (``PlacementSpeeds``). In a table without gangs
    above 1 a gang runs at gang times the speed of one device. Speeds on an accelerator that the
    table lacks are unknown, and so are all others that it lacks if ``assumed`` is set: they are
    estimated (``SpeedEstimates``). Otherwise a job does not run where the table has no entry.
    """

    steps_per_s: Mapping[SpeedKey, float]
    source: str = ""
    assumed: float | None = None
    """speed of one device for unknown workloads; None: these are rejected"""
    measured: Mapping[SpeedKey, float] = field(default_factory=dict)
    """speeds that running jobs have measured; these replace the entries of the table"""
    on_one_node: frozenset[SpeedKey] = frozenset()
    """those of gangs on one node; the other consolidated ones count for every placement"""
    measured_pairs: Mapping[SpeedKey, float] = field(default_factory=dict)
    """speeds that packed jobs have measured, by scoped workload and scoped partner"""
    estimates: bool = True
    """False: a workload of the table runs only where it has an entry, as in earlier versions,
    whose logs are replayed so"""
    learner: Learner | None = None
    """makes the estimates; None: they are means, as in earlier versions"""
    quantile: float = 0.5
    """quantile of an estimate that decisions use: above 0.5, jobs try accelerators that may be
    fast; below, they stay where their speed is known"""
    trials: Trials | None = None
    """weighs trials of accelerators that may be fast; None: nothing is tried to learn from it"""
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
        key = SpeedKey(workload, gang, accelerator)
        speed = self._lookup(workload, gang, accelerator, placement, partner)
        if speed > 0.0 or key in self.steps_per_s or key in self.measured:
            return speed
        gangs = self.gangs.get(plain_workload(workload), ())
        smaller = (g for g in reversed(gangs) if g < gang)
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
        workload = self.workload_of(job)
        row = self.row(workload, job.gang, accelerators)
        if not job.gangs:
            return self.with_declared(job, accelerators, row)
        row = row.copy()
        for j, accelerator in enumerate(accelerators):
            if accelerator in job.gangs:
                gang = job.gangs[accelerator]
                try:
                    self.require(workload, gang)
                except InputError as error:
                    raise InputError(error.problem, fix=error.fix, field="accelerators") from None
                row[j] = self.speed(workload, (accelerator,) * gang)
        return self.with_declared(job, accelerators, row)

    def with_declared(self, job: Job, accelerators: Sequence[str], row: FloatArray) -> FloatArray:
        """Return accelerators → steps per second, with estimates that heed the declared speeds.

        Measured speeds and those of the table stay: what a tenant declares is a prior.
        """
        if not job.declared_speeds:
            return row
        workload, row = self.workload_of(job), row.copy()
        for j, accelerator in enumerate(accelerators):
            gang = job.gang_on(accelerator)
            if self.source_of(workload, gang, accelerator) == "assumed":
                row[j] = self.job_speed(job, gang, accelerator)
        return row

    def job_speed(self, job: Job, gang: int, accelerator: str) -> float:
        """Return the steps per second of a job if it had this many devices."""
        workload = self.workload_of(job)
        if job.declared_speeds and self.source_of(workload, gang, accelerator) == "assumed":
            return self._planned(workload, gang, accelerator, declared_speeds(job))
        return self.speed(workload, (accelerator,) * gang)

    def workload_of(self, job: NamesWorkload) -> str:
        """Return the workload by which a job's speed is looked up.

        It is scoped once it was measured, or once its tenant has measured other workloads from
        which its speed may be estimated.
        """
        if not self.measured:
            return job.workload
        scoped = scoped_workload(job.tenant, job.workload, job.id)
        if scoped in self._measured_workloads:
            return scoped
        learns = self.learner is not None and self.learner.process and bool(job.workload)
        return scoped if learns and job.tenant in self._measuring_tenants else job.workload

    def with_measured(
        self,
        measured: Mapping[SpeedKey, float],
        pairs: Mapping[SpeedKey, float] | None = None,
        on_one_node: frozenset[SpeedKey] = frozenset(),
    ) -> "SpeedTable":
        """Return the table with these measured speeds, of jobs alone and of packed ones."""
        if not (measured or self.measured or pairs or self.measured_pairs):
            return self
        pairs = pairs or {}
        return replace(self, measured=measured, measured_pairs=pairs, on_one_node=on_one_node)

    def listed_speed(self, workload: str, gang: int, accelerator: str) -> float | None:
        """Return the table's own speed of a gang; None if it has none."""
        return self._entry(workload, gang, accelerator, "consolidated", None)

    def source_of(
        self, workload: str, gang: int, accelerator: str, placement: Consolidation = "consolidated"
    ) -> SpeedSource:
        """Return whether a gang's speed was measured, is of the table, or is an estimate."""
        key = SpeedKey(workload, gang, accelerator, placement)
        if key in self.measured:
            return "measured"
        taught = self.placements.taught(key) if self.measured else None
        if taught is not None:
            return "measured" if taught.doubt is None else "assumed"
        if self.placements.unlisted_ratio(key) is not EQUAL:
            return "assumed"
        workload = plain_workload(workload)
        if self.listed_speed(workload, gang, accelerator) is not None:
            return "table"
        return "assumed" if self._is_unknown(workload, accelerator) else "table"

    @cached_property
    def medians(self) -> "SpeedTable":
        """The same speeds with the medians of estimates, whatever decisions use."""
        if self.quantile == 0.5 and self.trials is None:
            return self
        return self._with_same_estimates(0.5, None)

    def with_trials(self, trials: Trials) -> "SpeedTable":
        """Return the table with the current state of exploration, if it explores at all."""
        return self if self.trials is None else self._with_same_estimates(self.quantile, trials)

    def _with_same_estimates(self, quantile: float, trials: Trials | None) -> "SpeedTable":
        table = replace(self, quantile=quantile, trials=trials)
        vars(table)["estimator"] = self.estimator  # so that nothing is estimated twice
        return table

    def lacking(self, accelerators: Iterable[str]) -> list[str]:
        """Return those of the accelerators for which the table has no speeds at all."""
        return [name for name in accelerators if name not in self._accelerator_names]

    def require(self, workload: str, gang: int) -> None:
        """Raise InputError unless the table has a speed of this gang on some accelerator."""
        workload = plain_workload(workload)
        gangs = self.gangs.get(workload)
        if self.assumed is not None and (gangs is None or self.estimates):
            return
        if gangs is None:
            raise unlisted_workload(workload, self.workloads, self.source)
        if gang not in gangs and self.has_gang_speeds:
            raise unlisted_gang(workload, gang, gangs, self.source)

    def _lookup(
        self,
        workload: str,
        gang: int,
        accelerator: str,
        placement: Consolidation,
        partner: str | None,
    ) -> float:
        """Return the speed of a gang on one accelerator; 0 where it does not run."""
        apart = 1.0
        if partner is None and self.measured:
            key = SpeedKey(workload, gang, accelerator, placement)
            measured = self.measured.get(key)
            if measured is not None:
                return measured
            taught = self.placements.taught(key)
            if taught is not None:
                return taught.steps_per_s
            apart = self.placements.unlisted_ratio(key).value
        plain = plain_workload(workload)
        speed = self._entry(plain, gang, accelerator, placement, partner)
        if speed is not None:
            return apart * speed
        if partner is None and self._is_unknown(plain, accelerator):
            if self.assumed is None and not self.has_gang_speeds:
                return apart * gang * self._planned(workload, 1, accelerator)
            return apart * self._planned(workload, gang, accelerator)
        return 0.0

    def _planned(
        self, workload: str, gang: int, accelerator: str, declared: tuple[DeclaredSpeed, ...] = ()
    ) -> float:
        """Return the speed that decisions use for an estimate, rounded: the same everywhere."""
        speed = self.estimator.estimate(workload, gang, accelerator, declared)
        if self.quantile == 0.5 and self.trials is None:
            return speed
        doubt = self.estimator.doubt(workload, gang, accelerator, declared)
        if doubt is None:
            return speed
        # A trial pays only against a known speed elsewhere.
        known = workload in self._measured_workloads or plain_workload(workload) in self.gangs
        key, trials = SpeedKey(workload, gang, accelerator), self.trials if known else None
        return float(f"{speed * planned_factor(key, doubt, self.quantile, trials):.6g}")

    def _entry(
        self,
        workload: str,
        gang: int,
        accelerator: str,
        placement: Consolidation,
        partner: str | None,
    ) -> float | None:
        """Return the table's speed; None if it has none."""
        speeds = self.steps_per_s
        speed = speeds.get(SpeedKey(workload, gang, accelerator, placement, partner))
        if speed is None and placement == "spread":
            speed = speeds.get(SpeedKey(workload, gang, accelerator, "consolidated", partner))
        if speed is None and gang > 1 and not self.has_gang_speeds:
            single = speeds.get(SpeedKey(workload, 1, accelerator, "consolidated", partner))
            speed = None if single is None else gang * single
        return speed

    def _is_unknown(self, workload: str, accelerator: str) -> bool:
        """Return whether a speed without entry is unknown; otherwise the job does not run."""
        listed = workload in self.gangs
        if self.assumed is not None and (self.estimates or not listed):
            return True
        return listed and self.estimates and bool(self.lacking((accelerator,)))

    @cached_property
    def measured_in_pairs(self) -> frozenset[str]:
        """The scoped workloads of which a speed beside a partner was measured."""
        return frozenset(
            name for key in self.measured_pairs for name in (key.workload, key.partner or "")
        )

    @cached_property
    def _accelerator_names(self) -> frozenset[str]:
        return frozenset(self.accelerators)

    @cached_property
    def _measured_workloads(self) -> frozenset[str]:
        return frozenset(key.workload for key in self.measured)

    @cached_property
    def _measuring_tenants(self) -> frozenset[str]:
        scopes = (scope_of(key.workload) for key in self.measured)
        return frozenset(scope.tenant for scope in scopes if scope is not None)

    @cached_property
    def placements(self) -> PlacementSpeeds:
        """Derives speeds of one placement from measured speeds of the other one."""

        known = (self.measured, self.on_one_node)
        return PlacementSpeeds(self.steps_per_s, self.listed_speed, *known)

    @cached_property
    def estimator(self) -> Estimator:
        """Estimates of the speeds of consolidated gangs that are not known."""
        unknown = DEFAULT_SPEED if self.assumed is None else self.assumed
        measured = self.placements.as_consolidated()
        if self.learner is not None:
            return self.learner.estimator(self.steps_per_s, measured, unknown)
        return SpeedEstimates(self.steps_per_s, measured, unknown)
