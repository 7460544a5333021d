"""The compiled loops of gandiva-fair and of HadarE give the results of the Python code."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.test_compiled import Pure, needs_compiled
from tests.unit.mechanisms.hadar_inputs import snapshot

from fairlead.compiled import compiled
from fairlead.mechanisms.gandiva_fair import migration, tickets
from fairlead.mechanisms.gandiva_fair.allocation import SpeedKnowledge, allocate_all
from fairlead.mechanisms.gandiva_fair.node_assignment import JobHomes
from fairlead.mechanisms.gandiva_fair.tickets import (
    DeviceSites,
)
from fairlead.mechanisms.hadar import forking
from fairlead.mechanisms.hadar.auction import Auction
from fairlead.mechanisms.hadar.hadare import HadarE
from fairlead.mechanisms.hadar.utilities import UTILITIES
from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.model.tenants.tenant import Tenant

CLUSTER = Cluster.of({"v100": 8, "k80": 12, "p100": 4}, per_node=4)
seeds = st.integers(0, 2**32 - 1)


def _snapshot(rng: np.random.Generator, n_jobs: int) -> Snapshot:
    tenants = tuple(Tenant(id=f"t{i}", weight=float(rng.integers(1, 4))) for i in range(3))
    speeds = rng.uniform(0.1, 4.0, (6, 3)) * (rng.random((6, 3)) < 0.9)
    speeds[~speeds.any(axis=1)] = 1.0
    jobs = [
        InstanceJob(
            id=str(i),
            gang=int(rng.choice([1, 1, 1, 2, 4])),
            speeds=dict(zip(CLUSTER.accelerators, speeds[rng.integers(6)].tolist(), strict=True)),
            tenant=f"t{rng.integers(3)}",
            weight=float(rng.choice([1.0, 1.0, 2 / 3])),
            steps_left=100.0,
        )
        for i in range(n_jobs)
    ]
    return snapshot_of(Instance(CLUSTER, tuple(jobs), tenants))


@needs_compiled
@settings(max_examples=100, deadline=None)
@given(seeds, st.integers(1, 40))
def test_served_tickets_and_gains_are_those_of_the_python_code(seed: int, n_jobs: int) -> None:
    rng = np.random.default_rng(seed)
    snap = _snapshot(rng, n_jobs)
    known = SpeedKnowledge(snap, rng.random(snap.profiles.speed.shape) < rng.choice([0.6, 1.0]))
    results: list[list[Any]] = []
    share = rng.uniform(0.1, 1.0, (3, 1)) * snap.capacity
    owing = rng.uniform(0.5, 2.0, share.shape)
    for pure in (False, True):
        homes = JobHomes(snap, DeviceSites.of(snap), share)
        with Pure(*((migration, tickets) if pure else ())):
            allocate_all(homes, known, np.arange(n_jobs))
            homes.owing = owing
            served = homes.served(homes.job_tickets())
            moves = [*migration.between_accelerators(homes, known, np.ones(n_jobs, dtype=bool))]
            gains = _all_gains(homes, known)
        results.append([homes.home.tolist(), served.tolist(), moves, gains.tolist()])
    assert results[0] == results[1]


def _all_gains(homes: JobHomes, known: SpeedKnowledge) -> FloatArray:
    width = len(homes.pools)
    rows = (homes.accelerator >= 0).nonzero()[0]
    groups = np.unique(homes.profile[rows] * width + homes.accelerator[rows])
    with np.errstate(divide="ignore", invalid="ignore"):
        return migration._gains(homes, known, *np.divmod(groups, width), groups)


@needs_compiled
@settings(max_examples=100, deadline=None)
@given(seeds, st.sampled_from([*UTILITIES]), st.integers(0, 3))
def test_copies_are_those_of_the_python_code(seed: int, utility: str, copies: int) -> None:
    rng = np.random.default_rng(seed)
    jobs = [
        (
            int(rng.choice([1, 1, 2, 4])),
            tuple(float(speed) for speed in rng.choice([0.0, 0.5, 1.0, 2.0, 3.7], 3)),
            float(rng.choice([10.0, 400.0, 9000.0])),
        )
        for _ in range(int(rng.integers(1, 12)))
    ]
    snap = snapshot(CLUSTER, *(job for job in jobs if any(job[1])), (1, (1.0, 1.0, 1.0), 100.0))
    auction = Auction(HadarE(utility=utility, round_s=60.0), snap)
    first = auction.decide(again=True)
    most = dict.fromkeys(first, copies or 24)
    forked = forking.fork(snap, auction, first, most)
    with Pure(forking):
        assert forking.fork(snap, auction, first, most) == forked
    if copies != 1 and len(first) == 1:
        assert any(len(devices) > 1 for devices in forked.values())


def _note_gains(*arguments: Any) -> None:
    assert compiled is not None
    compiled.migration_gains(*arguments)


@needs_compiled
def test_wrong_arguments_are_refused() -> None:
    assert compiled is not None
    row, number, none = np.zeros(2, dtype=np.int64), np.ones(2), np.zeros(0, dtype=np.int64)
    claims = (row, row, row + 1, row + 1, row, row[:1] + 4, number)
    compiled.served_tickets(*claims, number[:1], np.empty(2))
    for arguments in (
        (*claims, number[:1], np.empty(1)),
        (row + 2, *claims[1:], number[:1], np.empty(2)),
        (row, row + 1, *claims[2:], number[:1], np.empty(2)),
        (*claims[:4], row + 1, *claims[5:], number[:1], np.empty(2)),
        (*claims[:2], row[:1], *claims[3:], number[:1], np.empty(2)),
    ):
        with pytest.raises(ValueError, match="fit together"):
            compiled.served_tickets(*arguments)
    # Two jobs of one profile, one group, two accelerators.
    rows, tables = (row, row, row[:1], row[:1], row[:1], row[:1] + 1), (row, row + 4)
    _note_gains(*rows, *tables, *[number] * 5, np.empty(2))
    for place in range(5):
        wrong = (*rows[:place], rows[place] + 2, *rows[place + 1 :])
        with pytest.raises(ValueError, match="fit together"):
            _note_gains(*wrong, *tables, *[number] * 5, np.empty(2))
    for place in range(5):
        numbers = [number] * 5
        numbers[place] = number[:1]
        with pytest.raises(ValueError, match="fit together"):
            _note_gains(*rows, *tables, *numbers, np.empty(2))
    with pytest.raises(ValueError, match="fit together"):
        _note_gains(*rows, row, none, *[number] * 5, np.empty(2))
    # Two jobs, one accelerator, one cell with two devices.
    terms, cell, added = np.ones((5, 2)), row[:1], np.empty((2, 2), dtype=np.int64)

    def fork(cell_of: Any, may: Any, rest: Any) -> int:
        assert compiled is not None
        return compiled.fork_copies(
            terms, number, row + 1, row + 2, cell_of, cell + 2, may, number.copy(), rest, added
        )

    assert fork(cell, row + 1, np.zeros(2)) == len(added)
    for wrong_ones in ((cell + 1, row, number), (cell, cell, number), (cell, row, number[:1])):
        with pytest.raises(ValueError, match="fit together"):
            fork(*wrong_ones)
