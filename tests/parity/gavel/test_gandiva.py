"""Gavel's packing baseline against the original Gavel's: its speeds, trace and cluster."""

import json
from functools import cache

import numpy as np
import pytest
from tests.support.shared_data import needs_shared, shared

from fairlead.files import read_cluster, read_speeds, read_trace
from fairlead.mechanisms.factory import create_mechanism
from fairlead.mechanisms.gavel_gandiva import PairAccount
from fairlead.model.events import Event, PlanReady
from fairlead.sim.driver import simulate
from fairlead.sim.record import Record
from fairlead.sim.scenario import Scenario

pytestmark = [needs_shared, pytest.mark.reference]

TRACE, CLUSTER = "static_single_100_seed0.csv.gz", "v100=6,p100=6,k80=6"


@cache
def _run(spec: str) -> tuple[Record, list[PairAccount]]:
    kept: list[PairAccount] = []

    def note(event: Event) -> None:
        if isinstance(event, PlanReady):
            assert isinstance(event.memory, PairAccount)
            kept.append(event.memory)

    record, _ = simulate(
        Scenario(
            cluster=read_cluster(CLUSTER),
            speeds=read_speeds(shared("data/gavel/simulation_throughputs.json.gz")),
            jobs=read_trace(shared("reference/gavel") / TRACE).jobs,
            mechanism=create_mechanism(spec, None, 360.0),
            on_event=note,
        )
    )
    return record, kept


@pytest.mark.slow
def test_static_trace_takes_as_long_as_under_gavels_gandiva() -> None:
    """Measured: 0.988 of its makespan, 0.989 of its average completion time."""
    runs = json.loads(shared("reference/gavel/simulations.json").read_text())
    (gavels,) = [r for r in runs if r["policy"] == "gandiva" and r["trace"] == TRACE]
    record, _ = _run("gavel-gandiva")
    assert record.finished_at.max() == pytest.approx(gavels["makespan_s"], rel=0.05)
    assert record.finished_at.mean() == pytest.approx(gavels["avg_jct_s"], rel=0.05)


@pytest.mark.slow
def test_other_partners_change_the_makespan_little() -> None:
    """Random pairs are no accident of the default seed: two others stay within 8 %."""
    specs = "gavel-gandiva", "gavel-gandiva:seed=1", "gavel-gandiva:seed=2"
    spans = [_run(spec)[0].finished_at.max() for spec in specs]
    assert max(spans) < 1.08 * min(spans)


@pytest.mark.slow
def test_jobs_are_paired_in_overload_only_and_losing_pairs_part() -> None:
    _, kept = _run("gavel-gandiva")
    in_overload = [memory for memory in kept if len(memory.job) > 18]
    assert in_overload
    assert all(len(memory.pairs) for memory in in_overload)
    assert not any(len(memory.pairs) for memory in kept if len(memory.job) <= 18)
    for memory in kept:
        assert len(np.unique(memory.pairs)) == memory.pairs.size
    met = {tuple(pair) for memory in kept for pair in memory.pairs.tolist()}
    long = {tuple(pair) for pair in kept[5].pairs.tolist()} & {
        tuple(pair) for pair in kept[200].pairs.tolist()
    }
    assert len(met) > 100  # partners that lose are exchanged
    assert long  # those that gain stay together
