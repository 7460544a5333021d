"""Packed pairs of jobs of one device, of which only those that can matter become options.

There are thousands of pairs of some eighty jobs, of which an optimum uses a few. Prices tell which
others may be used: those whose devices and members' time cost little more than the pair is worth.
"""

from collections.abc import Callable

import numpy as np

from fairlead.compiled import compiled
from fairlead.model.arrays import NO_INTS, FloatArray, IntArray, is_among
from fairlead.model.snapshot import Snapshot
from fairlead.policies._packing.pair_speeds import SinglePairs, pays_off
from fairlead.policies._packing.table import TableBuilder, UnitRules, UnitTable
from fairlead.policies.rules.quotas import any_quota
from fairlead.solve.classes import merge
from fairlead.solve.options.pool import Prices
from fairlead.solve.options.problem import OptionProblem

ValueOf = Callable[[UnitTable, OptionProblem], FloatArray]


class NearPairs:
    """The options of jobs that are all apart: an ``OptionPool``."""

    def __init__(
        self,
        builder: TableBuilder,
        pairs: SinglePairs,
        value: FloatArray,
        scale: FloatArray,
        value_of: ValueOf,
        profile: IntArray,
    ) -> None:
        """List no pairs yet.

        ``value`` is jobs × accelerators → value of a step per second there; ``scale`` and
        ``value_of`` give the program and the values of the options of a table. ``profile`` is
        jobs → profile.
        """
        self._builder, self._pairs, self._value = builder, pairs, np.ascontiguousarray(value)
        self._scale, self._value_of, self._profile = scale, value_of, profile
        self._code = NO_INTS
        """listed pairs, ascending: (first × jobs + second) × accelerators + accelerator"""
        self._table: UnitTable | None = None
        self._listed: tuple[OptionProblem, FloatArray] | None = None

    @property
    def resources(self) -> int:
        """The number of accelerators."""
        return int(self._value.shape[1])

    @property
    def table(self) -> UnitTable:
        """The options listed so far."""
        if self._table is None:
            self._table = self._builder.table(self._columns())
        return self._table

    def add_near(self, prices: Prices, limit: float) -> bool:
        """List all pairs that lack at most ``limit`` at these prices; tell if any is new."""
        return self._add(self._near(prices, limit))

    def add_fastest(self) -> None:
        """List a pair of each job that is faster in some pair than alone: where it is fastest."""
        pairs, (jobs, width) = self._pairs, self._value.shape
        quicker = self._fastest()[self._profile] > pairs.alone.max(axis=1)
        code = []
        for job in quicker.nonzero()[0].tolist():
            own, other = (
                pairs.block[pairs.name[job], pairs.name],
                pairs.block[pairs.name, pairs.name[job]],
            )
            pays = pays_off(own, other, pairs.alone[job], pairs.alone)
            pays[job] = False
            partner, column = divmod(int(np.where(pays, own, 0.0).argmax()), width)
            first, second = sorted((job, partner))
            code.append((first * jobs + second) * width + column)
        self._add(np.unique(np.array(code, dtype=np.int64)))

    def add_all(self) -> None:
        """List all pairs that pay."""
        nothing = np.zeros(len(self._value))
        self._add(self._near(Prices(np.zeros(self.resources), nothing, nothing), np.inf))

    def _add(self, code: IntArray) -> bool:
        """List pairs; tell if any is new."""
        code = code[~is_among(code, self._code)]
        if not len(code):
            return False
        self._code = np.sort(np.append(self._code, code))
        self._table = self._listed = None
        return True

    def listed(self) -> tuple[OptionProblem, FloatArray]:
        """Return the problem of the options listed so far, and their values."""
        if self._listed is None:
            self._listed = self._sum(self.table)
        return self._listed

    def all(self) -> tuple[OptionProblem, FloatArray]:
        """Return the problem of all options, and their values."""
        return self._sum(self._builder.table())

    def _sum(self, table: UnitTable) -> tuple[OptionProblem, FloatArray]:
        problem = table.problem(self._scale)
        return problem, self._value_of(table, problem)

    def _columns(self) -> tuple[IntArray, IntArray, IntArray, FloatArray, FloatArray]:
        jobs, width = self._value.shape
        pair, column = np.divmod(self._code, width)
        first, second = np.divmod(pair, jobs)
        name, block = self._pairs.name, self._pairs.block
        own = block[name[first], name[second], column]
        return column, first, second, own, block[name[second], name[first], column]

    def _fastest(self) -> FloatArray:
        """Return profiles → greatest speed of its jobs, alone or in a pair; 0 without jobs."""
        pairs = self._pairs
        profile, row, count = np.unique(self._profile, return_index=True, return_counts=True)
        name, alone = pairs.name[row], pairs.alone[row]
        own = pairs.block[name[:, None], name]
        pays = pays_off(own, own.swapaxes(0, 1), alone[:, None], alone)
        lonely = (count < 2).nonzero()[0]
        pays[lonely, lonely] = False
        fastest = np.zeros(int(self._profile.max(initial=-1)) + 1)
        fastest[profile] = np.maximum(alone.max(axis=1), np.where(pays, own, 0.0).max(axis=(1, 2)))
        return fastest

    def _level_worth(self, prices: Prices) -> FloatArray:
        """Return jobs → worth of its level: where it is unknown, what its time alone costs."""
        unknown = np.isnan(prices.level).nonzero()[0]
        if not len(unknown):
            return prices.level
        gain = self._pairs.alone[unknown] * self._scale[unknown][:, None]
        cost = np.divide(prices.device, gain, out=np.full(gain.shape, np.inf), where=gain > 0)
        least = cost.min(axis=1)
        level = prices.level.copy()
        level[unknown] = np.where(np.isfinite(least), least, 0.0)
        return level

    def _near(self, prices: Prices, limit: float) -> IntArray:
        """Return the codes of the pairs that pay and lack at most ``limit``, ascending."""
        pairs, (jobs, width) = self._pairs, self._value.shape
        value = self._value if prices.value == 1.0 else prices.value * self._value
        if prices.level.any():
            value = value + (self._level_worth(prices) * self._scale)[:, None]
        if compiled is not None:
            code = np.empty(32 * (jobs + 1), dtype=np.int64)
            while True:
                count = compiled.near_pairs(
                    *(pairs.name, pairs.block, pairs.alone, value),
                    *(prices.device, prices.time, limit, code),
                )
                if count <= len(code):
                    return code[:count]
                code = np.empty(count, dtype=np.int64)
        first, second = np.triu_indices(jobs, 1)
        own = pairs.block[pairs.name[first], pairs.name[second]]
        other = pairs.block[pairs.name[second], pairs.name[first]]
        worth = own * value[first] + other * value[second]
        time = prices.time[:, None]
        lacks = prices.device + time[first] + time[second] - worth
        near = pays_off(own, other, pairs.alone[first], pairs.alone[second]) & (lacks <= limit)
        pair, column = near.nonzero()
        near_code: IntArray = (first[pair] * jobs + second[pair]) * width + column
        return near_code


def near_pairs(
    snap: Snapshot,
    rules: UnitRules,
    value: FloatArray,
    scale: FloatArray,
    value_of: ValueOf,
    distinct: FloatArray | None = None,
) -> NearPairs | None:
    """Return the pairs of a snapshot's jobs, None if more than the speed table decides on them.

    Also None if jobs are alike: with ``distinct``, in all that it holds (jobs × anything) beside
    speeds and workload. A table has one class for them, and treats them equally.
    """
    if not _table_decides(snap, rules):
        return None
    number = snap.job.astype(np.float64).reshape(-1, 1)
    builder = TableBuilder(snap, number, rules, apart=True)
    pairs = builder.single_pairs()
    if distinct is not None:
        properties = np.column_stack([pairs.alone, distinct])
        if len(merge(properties, pairs.name.astype(np.float64)).count) < len(number):
            return None
    return NearPairs(builder, pairs, value, scale, value_of, snap.profile)


def _table_decides(snap: Snapshot, rules: UnitRules) -> bool:
    """Return whether every job needs one device and the speed table alone decides on pairs."""
    return (
        rules.packed
        and not rules.placement
        and snap.profiles.single
        and snap.profiles.memory_gib is None
        and not snap.pairs
        and snap.speeds is not None
        and not snap.speeds.measured_pairs
        and not any_quota(snap)
    )
