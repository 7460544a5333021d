"""Merges identical rows into classes, exactly and in the same way on every machine."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairlead.model.arrays import FloatArray, IntArray

# splitmix64's constants: odd, so that multiplication permutes the 64-bit integers.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)

_PROBE = 2048


@dataclass(frozen=True, slots=True)
class Classes:
    """Classes of alike members, numbered by their first member."""

    index_of_member: IntArray  # members → class
    representative: IntArray  # classes → first member
    count: IntArray  # classes → number of members

    @classmethod
    def apart(cls, members: int) -> "Classes":
        """Return a class for each member."""
        each = np.arange(members)
        return cls(each, each, np.ones(members, dtype=np.int64))


def merge(*columns: FloatArray) -> Classes:
    """Return the classes of members whose values are equal in every column.

    A column is one value or a row of values for each member. 0.0 and -0.0 are equal.
    """
    rows = np.column_stack([np.asarray(c, dtype=np.float64) for c in columns])
    if not len(rows):
        none = np.zeros(0, np.int64)
        return Classes(none, none, none)
    code = row_hash(rows)
    first, index = _distinct(code)
    if not np.array_equal(rows[first[index]], rows):
        # Two different rows share a hash: sort the rows themselves.
        order = np.lexsort(rows.T[::-1])
        new = np.ones(len(rows), bool)
        new[1:] = (rows[order][1:] != rows[order][:-1]).any(axis=1)
        index = np.empty(len(rows), np.int64)
        index[order] = np.cumsum(new) - 1
        first = np.full(int(new.sum()), len(rows))
        np.minimum.at(first, index, np.arange(len(rows)))
    rank = np.empty(len(first), np.int64)
    by_first = np.argsort(first)
    rank[by_first] = np.arange(len(first))
    index = rank[index]
    return Classes(index, first[by_first], np.bincount(index).astype(np.int64))


def _distinct(code: npt.NDArray[np.uint64]) -> tuple[IntArray, IntArray]:
    """Return the first place of each distinct code, in the order of codes, and members → code."""
    if len(code) > 4 * _PROBE:
        few = np.unique(code[:_PROBE])
        if 4 * len(few) < _PROBE:
            # Few classes so far: look members up among them instead of sorting all.
            index = np.minimum(np.searchsorted(few, code), len(few) - 1)
            if np.array_equal(few[index], code):
                first = np.full(len(few), len(code))
                np.minimum.at(first, index[:_PROBE], np.arange(_PROBE))
                return first, index
    _, first, index = np.unique(code, return_index=True, return_inverse=True)
    return first, index


def row_hash(rows: FloatArray) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each row's bits that is the same on every machine."""
    bits = (np.ascontiguousarray(rows) + 0.0).view(np.uint64)
    code = np.zeros(len(rows), np.uint64)
    for column in range(rows.shape[1]):
        code = _mix(code + bits[:, column] + _STEP)
    return code


def fractions(code: npt.NDArray[np.uint64], width: int) -> FloatArray:
    """Return rows × width numbers in [0, 1) that are a fixed generic function of the hashes."""
    return fraction(code[:, None], np.arange(width))


def fraction(code: npt.NDArray[np.uint64], column: IntArray) -> FloatArray:
    """Return the numbers of these columns, one of each row or all of a row."""
    shift = _STEP * (column + 1).astype(np.uint64)
    return (_mix(code + shift) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(code: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    code = (code ^ (code >> np.uint64(30))) * _MIX_A
    code = (code ^ (code >> np.uint64(27))) * _MIX_B
    return code ^ (code >> np.uint64(31))
