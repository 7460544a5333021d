"""Gandiva (Xiao et al., OSDI 2018), §6.3: a thousand jobs on 180 devices."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.papers.gandiva.recorded_run import MINUTE, P40

from fairlead.files import read_speeds
from fairlead.mechanisms._queues.serving import by_arrival, holds_devices, idle_devices
from fairlead.mechanisms.gandiva import Gandiva
from fairlead.model.arrays import IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.model.lease import NO_PLACEMENTS, Placement, Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.driver import simulate
from fairlead.sim.physics.gandiva import gandiva_physics
from fairlead.sim.record import Record
from fairlead.sim.scenario import Scenario

DEVICES = 180
LOW, MIDDLE, HIGH = list(P40)[:2], list(P40)[2:5], list(P40)[5:]


@dataclass(frozen=True)
class BinPacking:
    """First in, first out onto the server that fits most tightly; no server is oversubscribed."""

    round_s: float = 60.0

    def initial(self) -> None:
        return None

    def plan(self, snap: Snapshot, memory: None) -> tuple[Plan, None]:
        until = snap.starts_at + self.round_s
        start = self.refill(snap, memory, idle_devices(snap))
        return Plan(np.zeros(0, dtype=np.int64), start, until, until), None

    def refill(self, snap: Snapshot, memory: None, idle: IntArray) -> Placements:
        del memory
        free: dict[int, list[int]] = {}
        for device in idle.tolist():
            free.setdefault(int(snap.cluster.node_of[device]), []).append(device)
        held, starts = holds_devices(snap), []
        for row in by_arrival(snap).tolist():
            if held[row]:
                continue
            gang = int(snap.gang[row])
            fits = [(len(there), node) for node, there in free.items() if len(there) >= gang]
            if not fits:
                break
            there = free[min(fits)[1]]
            starts.append(Placement(int(snap.job[row]), 0, tuple(there[:gang])))
            del there[:gang]
        return Placements.of(starts) if starts else NO_PLACEMENTS


def mix(seed: int) -> list[Job]:
    """Return 1,000 jobs over two hours in the paper's mix, 30–45 minutes of device time each."""
    draw = np.random.default_rng(seed)
    jobs = []
    for i, at in enumerate(np.sort(draw.uniform(0, 7200, 1000)).tolist()):
        group = (LOW, MIDDLE, HIGH)[int(np.searchsorted((0.3, 0.55), draw.random()))]
        workload = group[int(draw.integers(len(group)))]
        gang = int(draw.choice([2, 4])) if workload.startswith("Res") else 1
        steps = float(draw.uniform(1800, 2700)) * P40[workload]
        job = Job(id=f"j{i}", workload=workload, gang=gang, total_steps=steps, arrival_at=at)
        jobs.append(job)
    return jobs


@cache
def experiment(mechanism: Any, seed: int = 0) -> Record:
    """Return §6.3 under a mechanism: P100 over P40 as in Gandiva_fair's Table 1, or its mean."""
    known = read_speeds("gandiva-fair")
    gain = {
        w: known.speed(w, ("p100",)) / known.speed(w, ("p40",))
        for w in P40
        if w in known.workloads
    }
    other = float(np.mean(list(gain.values())))
    speeds = SpeedTable(
        {
            SpeedKey(w, g, accelerator): speed
            * g
            * (1.0 if accelerator == "p40" else gain.get(w, other))
            for w, speed in P40.items()
            for g in (1, 2, 4)
            for accelerator in ("p40", "p100")
        }
    )
    record, _ = simulate(
        Scenario(
            cluster=Cluster.of({"p100": 88, "p40": 92}, per_node=4),
            speeds=speeds,
            jobs=mix(seed),
            mechanism=mechanism,
            physics=gandiva_physics(),
        )
    )
    return record


def stable_until(record: Record) -> float:
    """Return until when more devices were wanted than there are."""
    arrival = np.array([job.arrival_at for job in record.jobs])
    gang = np.array([job.gang for job in record.jobs])
    instants = np.arange(7200.0, 14400.0, 60.0)
    wanted = [gang[(arrival <= t) & (record.finished_at > t)].sum() for t in instants]
    return float(instants[np.array(wanted) > DEVICES].max())


@pytest.mark.slow
def test_thousand_jobs_hear_of_themselves_early_and_keep_devices_busier() -> None:
    """§6.3: −77 % time to 100 mini-batches, +26 % utilisation with time-slicing and packing."""
    baseline, gandiva = experiment(BinPacking()), experiment(Gandiva(migration=False))
    assert not np.isnan(gandiva.finished_at).any()
    arrival = np.array([job.arrival_at for job in baseline.jobs])
    early = [float((run.first_steps_at - arrival).mean()) for run in (baseline, gandiva)]
    assert early[1] < 0.4 * early[0]
    assert 1800 < early[0] < 2600  # the paper's baseline: 2,203 s
    last = min(stable_until(baseline), stable_until(gandiva))
    assert last > 150 * MINUTE
    busy = [
        run.utilization_log.mean(20 * MINUTE, last) / DEVICES
        for run in (baseline, gandiva)
        if run.utilization_log
    ]
    assert busy[1] > 1.15 * busy[0]
    assert 0.45 < busy[0] < 0.625  # 50.1 % in the paper; 62.5 % would be full occupancy
    # Over the paper's own window the work ends sooner under Gandiva, which leaves less to gain.
    whole = [
        run.utilization_log.mean(20 * MINUTE, 200 * MINUTE)
        for run in (baseline, gandiva)
        if run.utilization_log
    ]
    assert whole[1] > 1.05 * whole[0]


# -- with all of it at work ---------------------------------------------------------------------
