"""Runs of quiet slices: only the time received and the passes change from one to the next."""

from dataclasses import replace

import numpy as np

from fairlead.mechanisms.gandiva.memory import KEPT, GandivaMemory
from fairlead.mechanisms.gandiva.quiet_slices import (
    PASS,
    Thresholds,
    UnitMembers,
    unchanged_units,
)
from fairlead.mechanisms.gandiva.servers import Servers
from fairlead.model.arrays import FloatArray
from fairlead.model.snapshot import Snapshot

_RECEIVED, _ACCELERATOR, _BEST, _CURRENT, _UTILIZATION, _MEMORY = (
    KEPT.index(name)
    for name in (
        *("received_s", "accelerator", "best_speed", "current_speed"),
        *("utilization", "memory_gib"),
    )
)


def repeated_units(
    snap: Snapshot, memory: GandivaMemory, limits: Thresholds
) -> UnitMembers | None:
    """Return the units if every slice after this one is quiet while nothing else changes.

    ``memory`` is that after the snapshot's plan, which started and stopped no job. Jobs then
    measure the same again, so their facts stay as they are.
    """
    members = unchanged_units(snap, memory, Servers(snap))
    if (
        members is None
        or members.packed.any()
        or (memory.load > members.servers.size).any()
        or not members.all_run()
        or not _knows_measurements(members, memory)
    ):
        return None
    at_any_time = replace(limits, settle_s=-np.inf)
    fresh = np.ones(len(snap.job), dtype=bool)
    return None if members.would_change(memory.facts, fresh, at_any_time) else members


def _knows_measurements(members: UnitMembers, memory: GandivaMemory) -> bool:
    """Return whether every job was measured at this plan and its facts have the results."""
    measured, facts = members.snap.measured, memory.facts
    if measured is None or not (measured.at == members.snap.starts_at).all():
        return False
    speed = measured.steps_per_s
    same = (measured.lease == members.snap.lease) & (facts[:, _CURRENT] == speed)
    same &= (facts[:, _ACCELERATOR] == members.accelerator) & (facts[:, _BEST] >= speed)
    return (
        bool(same.all())
        and np.array_equal(facts[:, _UTILIZATION], measured.utilization, equal_nan=True)
        and np.array_equal(facts[:, _MEMORY], measured.memory_gib, equal_nan=True)
    )


def memory_after_repeats(
    members: UnitMembers, memory: GandivaMemory, starts_at: FloatArray, received_s: FloatArray
) -> tuple[int, GandivaMemory]:
    """Return the number of slices, which all are quiet, and the memory after them.

    ``received_s`` is slices × rows × accelerators: the time received when the slice starts.
    """
    snap = members.snap
    received_s = received_s.sum(axis=2)
    facts = memory.facts_of(snap.job, received_s[0])
    members.share_passes(facts)
    members.note_weights(facts)
    if len(starts_at) > 1:
        since = np.maximum(np.diff(received_s, axis=0), 0.0) / snap.weight
        # Rounding is monotonic, so the latest pass is the common one plus the longest time.
        there = members.home[members.unit_of]
        order = there.argsort(kind="stable")
        first = np.flatnonzero(np.diff(there[order], prepend=-1))
        longest = np.maximum.reduceat(since[:, order], first, axis=1)
        shared = facts[order[first], PASS]
        passes = np.add.accumulate(np.vstack([shared, longest]), axis=0)[-1]
        facts[order, PASS] = passes.repeat(np.diff(first, append=len(order)))
        facts[:, _RECEIVED] = received_s[-1]
    fresh = np.ones(len(snap.job), dtype=bool)
    after = members.memory_after(memory, facts, fresh)
    return len(starts_at), replace(after, at=float(starts_at[-1]))
