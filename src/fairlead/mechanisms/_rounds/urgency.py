"""Urgency of running a row on an accelerator in this round."""

import numpy as np

from fairlead.compiled import compiled
from fairlead.mechanisms._rounds.candidates import CandidateEntries
from fairlead.mechanisms._rounds.deficits import CARRIED, LEAST_DUE, OWED, SHARE
from fairlead.model.arrays import BoolArray, FloatArray, IntArray

_SOON = np.array([7.0, *(3.0 + 1.3**-n for n in range(1, 24))])
"""urgency by the number of rounds until a job must run; a table, so that every machine agrees"""
_SOMEWHERE = 1.0
"""extra urgency of a job on each accelerator if it must run on one of several"""


_WHOLE_SHARE = 0.9
"""share of an accelerator from which on a job keeps it where full-time jobs come first"""
_WHOLE_TIME = 0.98
"""share of all accelerators together from which on a job cannot make up for a lost round"""
_KEEPS, _HURRIES = 100.0, 5.0
"""extra urgency of such entries: above any debt, and above any but the oldest"""


def full_time_first(
    entries: CandidateEntries, share: FloatArray, total: FloatArray
) -> CandidateEntries:
    """Return the entries with rows that need all of the time before others.

    ``share`` is rows × accelerators → share, ``total`` rows → share of all its jobs' time.
    Where the last job to end counts, others can make up for a round without devices later, but
    not these.
    """
    weight = entries.weight.copy()
    weight[share[entries.row, entries.column] >= _WHOLE_SHARE] += _KEEPS
    weight[total[entries.row] >= _WHOLE_TIME] += _HURRIES
    return entries._replace(weight=weight)


_SHORTEST = 4.0
"""extra urgency of the row with the least time left over the one with the most"""
_TURN = 0.001
"""urgency of a round owed where rows run ahead of their shares: it decides only on which
accelerator of several a row runs next"""
_STAYS = 0.2
"""extra urgency there of a row on the accelerator on which it runs"""


def shortest_first(
    tables: FloatArray,
    round_s: float,
    left_s: FloatArray,
    total: FloatArray,
    on: IntArray | None = None,
) -> CandidateEntries:
    """Return every (row, accelerator) entry with a share, the least time left first.

    For policies whose shares divide the devices until all jobs are done, at no particular time
    (``Capabilities.ends_early``): a row may run ahead of its share without bound, and the next
    allocation gives more to those that have waited. ``left_s`` is rows → time left, ``total``
    rows → share of all its jobs' time; rows that need all of the time come first.
    """
    share, owed = tables[SHARE], tables[OWED]
    row, column = share.nonzero()
    rank = np.empty(len(left_s))
    rank[left_s.argsort(kind="stable")] = np.arange(len(left_s))
    weight = 1.0 + _SHORTEST * (1.0 - rank[row] / max(len(left_s), 1))
    due = owed[row, column] / round_s + share[row, column]
    weight += _TURN * np.clip(due, -100.0, 100.0)
    if on is not None:
        weight[on[row] == column] += _STAYS
    return full_time_first(CandidateEntries(row, column, weight), share, total)


_LAST, _LAST_ALONE = 1000.0, 900.0
"""extra urgency of units with a job that ends last, and of that job alone: above any other"""


def last_to_end_first(
    entries: CandidateEntries, members: IntArray, held: FloatArray, left_s: FloatArray
) -> CandidateEntries:
    """Return the entries of units with the jobs first that end last whatever else happens.

    Those are the jobs with the most time left that need all of it: a lost round delays the
    makespan. Other jobs with whole shares can keep their partners from running, since a round
    realises only some of a job's units. If all partners run elsewhere, such a job runs alone.
    ``members`` is units × width → rows of jobs, the jobs alone first; ``held`` jobs ×
    accelerators → share in all of its units; ``left_s`` jobs → time left.
    """
    total = held.sum(axis=1)
    longest_s = left_s[total > 0].max(initial=0.0)  # jobs without a share wait for devices
    last: BoolArray = (left_s >= _WHOLE_TIME * longest_s) & (total >= _WHOLE_TIME)
    if not last.any():
        return entries
    is_last = np.append(last, False)  # ABSENT is the last one
    inside: BoolArray = np.logical_or.reduce(is_last[members], axis=1)
    weight = entries.weight + _LAST * inside[entries.row]
    lacks = (held > 0) & last[:, None]
    is_alone = entries.row < len(held)
    lacks[entries.row[is_alone], entries.column[is_alone]] = False
    alone, column = lacks.nonzero()
    return CandidateEntries(
        np.append(entries.row, alone),
        np.append(entries.column, column),
        np.append(weight, _LAST_ALONE + held[alone, column]),
    )


def urgent_entries(
    tables: FloatArray, round_s: float, on: IntArray | None = None, stay: float = 0.0
) -> CandidateEntries:
    """Return the (row, accelerator) entries that may run this round, and how urgent each is.

    ``tables`` are those of an account, for jobs or for units. In units of a round, let d be what
    would be owed at the round's end if the row did not run. Running it then leaves it d - 1
    behind, so it may run only when d > 0 and must when d >= 1. Among those who may, the sooner
    they must the more urgent; a constant keeps it better to serve two than one. A row that is
    owed a round on all of its accelerators together must run on one of them. The constants were
    chosen by measured fidelity: docs/design/rounds.md.
    """
    if compiled is not None:
        _, rows, width = tables.shape
        size = rows * width
        row, column, weight = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size)
        tables = np.ascontiguousarray(tables)
        n = compiled.urgent(
            tables, rows, round_s, _SOON, _SOMEWHERE, on, stay, row, column, weight
        )
        return CandidateEntries(row[:n], column[:n], weight[:n])
    at = tables[SHARE].ravel().nonzero()[0]
    entry = tables[: CARRIED + 1].reshape(CARRIED + 1, -1).take(at, axis=1)
    entry[OWED:] /= round_s
    share, due, weight = entry
    due += share
    rounds_left = 1.0 - due
    rounds_left /= share
    rounds_left += 1.0 - 1e-9  # what is cut off next makes this a ceiling
    weight += due
    weight += _SOON.take(rounds_left.astype(np.int64), mode="clip")
    row = at // tables.shape[2]
    column = at - row * tables.shape[2]
    if np.count_nonzero(row[1:] == row[:-1]):
        several = np.bincount(row) > 1
        somewhere = several & (np.bincount(row, due) >= 1.0 - 1e-9)
        weight[somewhere[row]] += _SOMEWHERE
    if on is not None:
        weight[on[row] == column] += stay
    may = due > LEAST_DUE
    return CandidateEntries(row, column, weight).where(may)


_SERVED = 0.3
"""weight of a row that is owed nothing, in rounds owed: the greater, the fewer devices are idle"""


def relative_speed(speed: FloatArray) -> FloatArray:
    """Return rows × accelerators → speed over that on the row's fastest accelerator."""
    relative: FloatArray = speed / np.maximum(speed.max(axis=1, keepdims=True), 1e-300)
    return relative


def progress_owed(
    tables: FloatArray,
    round_s: float,
    speed: FloatArray,
    on: IntArray | None = None,
    stay: float = 0.0,
) -> CandidateEntries:
    """Return every (row, accelerator) on which a row makes progress, by the progress owed to it.

    For policies whose shares on one accelerator may be made up for on others
    (``Capabilities.trades_accelerators``). In rounds on a row's fastest accelerator, let d be the
    progress that is owed to it; time ahead counts against time behind elsewhere. The weight of an
    entry is the progress of a round there times d and a constant, so that devices go where they
    reduce debts most. ``speed`` is rows × accelerators → speed.
    """
    relative = relative_speed(speed)
    owed = (tables[OWED] + tables[CARRIED]) / round_s
    due = _SERVED + np.maximum((owed * relative).sum(axis=1), 0.0)
    row, column = relative.nonzero()
    weight = due[row]
    if on is not None:
        weight[on[row] == column] += stay
    weight *= relative[row, column]
    return CandidateEntries(row, column, weight)
