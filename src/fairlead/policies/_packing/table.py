"""Classes of jobs and their options: the table of the programs over units.

An option is a class of jobs alone, or two classes packed, on one accelerator and, under the rule
``placement``, in one placement. The program over options is in ``fairlead.solve.options.problem``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np
import numpy.typing as npt

from fairlead.model.allocation import Column
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import InputError
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.key import PLACEMENTS, plain_workload
from fairlead.model.speeds.profile_speeds import spread_speeds
from fairlead.model.speeds.table import Consolidation
from fairlead.policies._packing.measured_pairs import (
    measured_block,
    memory_of_jobs,
    overrule,
    pair_workloads,
)
from fairlead.policies._packing.pair_speeds import SinglePairs, pays_off
from fairlead.policies.base import accelerator_columns
from fairlead.policies.rules.quotas import Quotas, any_quota
from fairlead.solve.classes import Classes, fraction, merge, row_hash
from fairlead.solve.options.problem import NO_PARTNER, ExtraRows, OptionProblem

ListedPairs = tuple[IntArray, IntArray, IntArray, FloatArray, FloatArray]
"""options → column, classes of both members, and their speeds"""


@dataclass(frozen=True, slots=True, eq=False)
class UnitTable:
    """The classes of a snapshot's jobs and the options they have.

    The option columns are those of ``OptionProblem``, with speeds for gains.
    """

    classes: Classes
    """jobs in the snapshot's order → classes"""
    capacity: FloatArray
    columns: tuple[Column, ...]
    column: IntArray
    """options → column"""
    size: FloatArray
    first: IntArray
    second: IntArray
    speed_first: FloatArray
    """options → steps per second of the first member"""
    speed_second: FloatArray
    tie: FloatArray
    code: npt.NDArray[np.uint64]
    """classes → hash of what its jobs have in common"""
    extra: ExtraRows | None = None
    """the tenants' quotas"""

    @property
    def resource(self) -> IntArray:
        """options → accelerator."""
        return np.array([c.accelerator for c in self.columns], dtype=np.int64)[self.column]

    def problem(self, scale: FloatArray) -> OptionProblem:
        """Return the program in which a job's level is its speed times its ``scale``.

        Jobs of one class have to have the same scale.
        """
        of_class = scale[self.classes.representative]
        second = np.where(self.second == NO_PARTNER, 0.0, of_class[self.second])
        return OptionProblem(
            count=self.classes.count.astype(float),
            capacity=self.capacity,
            resource=self.resource,
            size=self.size,
            first=self.first,
            second=self.second,
            gain_first=self.speed_first * of_class[self.first],
            gain_second=self.speed_second * second,
            tie=self.tie,
            extra=self.extra,
        )


@dataclass(frozen=True, slots=True)
class UnitRules:
    """The allowed options: packed pairs, and separate options for placements."""

    packed: bool = False
    placement: bool = False


def unit_table(
    snap: Snapshot,
    distinct: FloatArray,
    rules: UnitRules,
    speed: FloatArray | None = None,
) -> UnitTable:
    """Return the classes of alike jobs, and the options that can pay.

    ``distinct`` (jobs × anything) holds properties by which the policy distinguishes jobs besides
    speeds, gang and workload. ``speed`` (jobs × accelerators) replaces the believed speeds of
    jobs alone. Omitted are options that are never better than others with the same devices
    and time:

    - a pair whose members' speeds relative to being alone sum to 1 or less: each alone for its
      relative speed's part of the time is as fast and leaves time over;
    - a spread gang that is no faster than a consolidated one.
    """
    if not any_quota(snap):
        return TableBuilder(snap, distinct, rules, speed).table()
    distinct = np.column_stack([distinct.reshape(len(snap.job), -1), snap.tenant])
    table = TableBuilder(snap, distinct, rules, speed).table()
    member = np.append(table.classes.representative, -1)  # class NO_PARTNER has none
    return replace(
        table,
        extra=Quotas(snap).rows(
            member[table.first],
            member[table.second],
            table.resource,
            table.size,
            table.speed_first,
            table.speed_second,
        ),
    )


class TableBuilder:
    """Builds the table of a snapshot without quotas; ``apart``: no two jobs are alike."""

    def __init__(
        self,
        snap: Snapshot,
        distinct: FloatArray,
        rules: UnitRules,
        speed: FloatArray | None = None,
        *,
        apart: bool = False,
    ) -> None:
        self._snap, self._rules = snap, rules
        by_profile = pair_workloads(snap) if rules.packed else snap.profiles.workload
        workloads = dict.fromkeys(by_profile)
        self._workload = [*workloads] or [""]
        code = {name: i for i, name in enumerate(workloads)}
        of_profile = np.zeros(len(snap.profiles.gang), dtype=np.int64)
        if workloads:
            of_profile[:] = [code[name] for name in by_profile]
        workload = of_profile[snap.profile]
        mark, names = self._explicit_pair_marks()
        by_row = distinct.reshape(len(mark), -1)
        # Without other differences, one job of each profile stands for all of them.
        by_profile_only = speed is None and not rules.packed and not by_row.any()
        rows = first_of_profiles(snap) if by_profile_only else slice(None)
        profile = snap.profile[rows]
        alone = snap.profiles.speed[profile] if speed is None else speed
        properties = np.column_stack([alone, snap.profiles.gang[profile], by_row[rows]])
        if snap.profiles.gangs is not None:
            properties = np.column_stack([properties, snap.profiles.gang_on[profile]])
        self._spread = spread_speeds(snap)[snap.profile] if self._knows_spread() else None
        if self._spread is not None and snap.speeds is not None and snap.speeds.placements.apart:
            properties = np.column_stack([properties, self._spread[rows]])
        memory_gib = memory_of_jobs(snap) if rules.packed else None
        if memory_gib is not None:
            properties = np.column_stack([properties, memory_gib])
        if apart:
            merged = Classes.apart(len(mark))
        else:
            merged = merge(properties, workload[rows].astype(float), mark[rows])
        properties = properties[merged.representative]
        self._classes = merged if isinstance(rows, slice) else _classes_of_all(snap, rows, merged)
        first = self._classes.representative
        width = len(snap.capacity)
        self._gang: IntArray = np.broadcast_to(
            snap.profiles.gang_on[snap.profile[first]], (len(first), width)
        )
        """classes × accelerators → devices needed at once"""
        self._speed = properties[:, :width] * (self._gang <= snap.capacity)
        self._workload_of = workload[first]
        self._memory_gib = None if memory_gib is None else memory_gib[first]
        # Ties must not depend on the order of jobs or workloads, so names are hashed, nor on the
        # last bits of a speed.
        texts = np.array([crc32(name.encode()) for name in self._workload], dtype=float)
        self._code = row_hash(
            _shortened(np.column_stack([properties, texts[self._workload_of], names[first]]))
        )

    def table(self, pairs: ListedPairs | None = None) -> UnitTable:
        """Return the table, with these pairs of ``single_pairs`` only if they are given."""
        width = len(self._snap.capacity)
        placements: Sequence[Consolidation | None] = (
            PLACEMENTS if self._rules.placement else (None,)
        )
        columns = tuple(Column(j, placement) for placement in placements for j in range(width))
        options = [
            each
            for at, placement in enumerate(placements)
            for each in self._options(at * width, placement, pairs)
        ]
        parts = [np.concatenate(part) for part in zip(*options, strict=True)]
        column, first, second, own, other = parts
        code = self._code[first] + np.where(second == NO_PARTNER, np.uint64(0), self._code[second])
        return UnitTable(
            classes=self._classes,
            capacity=self._snap.devices,
            columns=accelerator_columns(width) if not self._rules.placement else columns,
            column=column,
            size=self._gang[first, column % width].astype(float),
            first=first,
            second=second,
            speed_first=own,
            speed_second=other,
            tie=fraction(code, column),
            code=self._code,
        )

    def _options(
        self, offset: int, placement: Consolidation | None, pairs: ListedPairs | None
    ) -> Iterator[ListedPairs]:
        """Yield the options of one placement, alone and packed."""
        speed = self._alone(placement)
        runs = speed > 0
        if placement == "spread":
            runs &= speed > self._alone("consolidated")
        k, j = runs.nonzero()
        none = np.full(len(k), NO_PARTNER)
        yield offset + j, k, none, speed[k, j], np.zeros(len(k))
        if not self._rules.packed:
            return
        if pairs is not None:
            yield pairs
            return
        a, b, own, other = self._pairs(placement or "consolidated")
        fits = pays_off(own, other, speed[a], speed[b])
        if placement == "spread":
            near = self._alone("consolidated")
            _, _, own_near, other_near = self._pairs("consolidated")
            works = (near[a] > 0) & (own_near > 0) & (other_near > 0)
            fits &= ~(works & (own <= own_near) & (other <= other_near))
        p, j = fits.nonzero()
        yield offset + j, a[p], b[p], own[p, j], other[p, j]

    def single_pairs(self) -> SinglePairs:
        """Return the speeds of pairs of jobs that need one device; the table alone decides."""
        snap = self._snap
        assert snap.speeds is not None
        known = snap.speeds.pairs(snap.cluster.accelerators)
        # The last row of the block stands for workloads that the table lacks.
        names = (known.index.get(plain_workload(w), -1) for w in self._workload)
        block = known.block(1, "consolidated")
        name = np.fromiter(names, dtype=np.int64)[self._workload_of] % len(block)
        return SinglePairs(name, block, self._speed)

    def _alone(self, placement: Consolidation | None) -> FloatArray:
        """Return classes × accelerators → speed alone in this placement; 0 where impossible."""
        if placement is None:
            return self._speed
        if placement == "consolidated":
            return np.where(self._gang <= self._largest_node(), self._speed, 0.0)
        speed = np.where(self._gang > 1, self._speed, 0.0)
        if self._spread is None:
            return speed
        return np.where(speed > 0, self._spread[self._classes.representative], 0.0)

    def _knows_spread(self) -> bool:
        snap = self._snap
        return self._rules.placement and snap.speeds is not None and bool((snap.gang_on > 1).any())

    def _largest_node(self) -> IntArray:
        """Return accelerators → maximum of its devices on one node that is up."""
        cluster, usable = self._snap.cluster, self._snap.usable
        held = np.zeros((len(cluster.nodes), len(self._snap.capacity)), dtype=np.int64)
        np.add.at(held, (cluster.node_of[usable], cluster.accelerator_of[usable]), 1)
        largest: IntArray = held.max(axis=0)
        return largest

    def _pairs(
        self, placement: Consolidation
    ) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
        """Return pairs of classes and pairs × accelerators → speeds of both members."""
        snap = self._snap
        if snap.pairs:
            return self._explicit_pairs()
        if snap.speeds is None:
            none = np.zeros(0, dtype=np.int64)
            return none, none, np.zeros((0, len(snap.capacity))), np.zeros((0, len(snap.capacity)))
        known = snap.speeds.pairs(snap.cluster.accelerators)
        listed = [known.index.get(plain_workload(w), -1) for w in self._workload]
        packed = [w in snap.speeds.measured_in_pairs for w in self._workload]
        name = np.array(listed)[self._workload_of]
        may_pair = (name >= 0) | np.array(packed)[self._workload_of]
        parts = []
        for gang in np.unique(self._gang).tolist():
            same = self._gang == gang
            k = (same.any(axis=1) & may_pair).nonzero()[0]
            x, y = np.triu_indices(len(k))
            a, b = k[x], k[y]
            enough = (a != b) | (self._classes.count[a] > 1)
            a, b = a[enough], b[enough]
            block = known.block(gang, placement)
            own, other = block[name[a], name[b]], block[name[b], name[a]]
            if snap.speeds.measured_pairs:
                names = [self._workload[w] for w in self._workload_of[k].tolist()]
                measured = measured_block(snap.speeds, snap.cluster.accelerators, names, gang)
                x, y = x[enough], y[enough]
                own = overrule(own, measured[x, y])
                other = overrule(other, measured[y, x])
            if self._memory_gib is not None:
                together = self._memory_gib[a] + self._memory_gib[b]
                own = np.where(together[:, None] <= snap.cluster.memory_gib, own, 0.0)
            if snap.profiles.gangs is not None:
                both = same[a] & same[b]
                own, other = np.where(both, own, 0.0), np.where(both, other, 0.0)
            parts.append((a, b, own, other))
        a, b, own, other = (np.concatenate(part) for part in zip(*parts, strict=True))
        return a, b, own, other

    def _explicit_pairs(self) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
        snap, class_of = self._snap, self._classes.index_of_member
        row = {snap.ids[number]: i for i, number in enumerate(snap.job.tolist())}
        accelerators = snap.cluster.accelerators
        known = [pair for pair in snap.pairs if all(job in row for job in pair.jobs)]
        a, b = (np.array([class_of[row[p.jobs[i]]] for p in known], dtype=int) for i in (0, 1))
        for pair, x, y in zip(known, a.tolist(), b.tolist(), strict=True):
            unequal = (self._gang[x] != self._gang[y]) & np.isin(accelerators, list(pair.speeds))
            for j in unequal.nonzero()[0].tolist()[:1]:
                raise InputError(
                    f"{'+'.join(pair.jobs)} cannot share devices: gangs of {self._gang[x, j]} and"
                    f" {self._gang[y, j]}",
                    fix="remove the pair or make the gangs equal",
                    field="pairs",
                )
        own, other = (
            np.array([[p.speeds.get(name, (0.0, 0.0))[i] for name in accelerators] for p in known])
            for i in (0, 1)
        )
        shape = (len(known), len(accelerators))
        return a, b, own.reshape(shape), other.reshape(shape)

    def _explicit_pair_marks(self) -> tuple[FloatArray, FloatArray]:
        """Return marks of jobs in explicit pairs, by row and by name; 0 for other jobs."""
        snap = self._snap
        mark, names = np.zeros(len(snap.job)), np.zeros(len(snap.job))
        if self._rules.packed and snap.pairs:
            paired = {name for pair in snap.pairs for name in pair.jobs}
            for i, number in enumerate(snap.job.tolist()):
                if snap.ids[number] in paired:
                    mark[i], names[i] = i + 1, crc32(snap.ids[number].encode())
        return mark, names


def first_of_profiles(snap: Snapshot) -> IntArray:
    """Return the first job's row of each profile that has jobs, ascending."""
    count = len(snap.job)
    first = np.full(len(snap.profiles.gang), count)
    np.minimum.at(first, snap.profile, np.arange(count))
    return np.sort(first[first < count])


def _classes_of_all(snap: Snapshot, rows: IntArray, merged: Classes) -> Classes:
    """Return the classes of all jobs, given those of the first job of each profile."""
    of_profile = np.zeros(len(snap.profiles.gang), dtype=np.int64)
    of_profile[snap.profile[rows]] = merged.index_of_member
    index = of_profile[snap.profile]
    count = np.bincount(index, minlength=len(merged.count))
    return Classes(index, rows[merged.representative], count)


def _shortened(values: FloatArray) -> FloatArray:
    """Return the values with ten binary-scaled decimals."""
    mantissa, exponent = np.frexp(values)
    shortened: FloatArray = np.ldexp(mantissa.round(10), exponent)
    return shortened
