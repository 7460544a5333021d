"""Packing that does not pay ends at the next slice, also where every device is in use."""

from itertools import combinations

from tests.papers.gandiva.recorded_run import MINUTE, Run

from fairlead.model.cluster import Cluster
from fairlead.model.events import NodeLost, NodeReturned
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable

NO_PHYSICS = {"physics": None}


def shared_without_a_unit(run: Run) -> list[tuple[float, int, int]]:
    """Return time and jobs where two jobs were on one device although no unit has both."""
    assert run.record.intervals is not None
    leases = list(
        zip(*(column.tolist() for column in run.record.intervals.columns()), strict=True)
    )
    units = [(at, {job: unit for unit in m.units for job in unit}) for at, m in run.memories()]
    shared = []
    for (one, device, _, start, end), (other, on, _, begin, stop) in combinations(leases, 2):
        if device != on or max(start, begin) >= min(end, stop) or one == other:
            continue
        shared += [
            (at, one, other)
            for at, unit_of in units
            if max(start, begin) <= at < min(end, stop) and unit_of[one] != unit_of[other]
        ]
    return shared


def test_jobs_whose_pair_has_no_speed_take_turns_and_are_apart_after_one_slice() -> None:
    """Three jobs on two devices of one server; the table has no speeds of pairs."""
    jobs = [Job(id=f"j{i}", workload="w", total_steps=1200.0, utilization=0.3) for i in range(3)]
    speeds = SpeedTable({SpeedKey("w", 1, "p100"): 1.0})
    run = Run(jobs, speeds, Cluster.of({"p100": 2}, per_node=2), more=NO_PHYSICS)
    tried = [at for at, memory in run.memories() if any(len(unit) > 1 for unit in memory.units)]
    assert tried
    assert shared_without_a_unit(run) == []
    # Two devices make at most 2 steps/s: 3,600 steps take 1,800 s, and jobs end at slices' ends.
    assert run.record.finished_at.max() <= 1800.0 + 3 * MINUTE


def test_a_kept_pair_that_stalls_on_another_accelerator_is_taken_apart() -> None:
    """Two jobs gain on the V100, move to the K80 when it returns, and do not fit there."""
    alone = {SpeedKey(w, 1, gpu): 1.0 for w in ("pair", "other") for gpu in ("v100", "k80")}
    beside = {
        SpeedKey("pair", 1, gpu, partner="pair"): speed
        for gpu, speed in (("v100", 0.9), ("k80", 0.0))
    }
    jobs = [
        Job(id="long", workload="other", total_steps=20_000.0, accelerators=("v100",)),
        *(Job(id=f"p{i}", workload="pair", total_steps=3e3, utilization=0.3) for i in range(2)),
    ]
    events = [NodeLost(0.0, "k80-0"), NodeReturned(1200.0, "k80-0")]
    run = Run(
        jobs,
        SpeedTable(alone | beside),
        Cluster.of({"v100": 1, "k80": 1}),
        more={**NO_PHYSICS, "node_events": events},
    )
    pair = [
        (at, home)
        for at, memory in run.memories()
        for unit, home in zip(memory.units, memory.homes, strict=True)
        if set(unit) == {1, 2}
    ]
    assert [at for at, home in pair if home == ((1, 1),)] == [1200.0]
    finished = run.record.finished_at
    # In turn on the K80, and beside the long job on the V100, they need 6,000 s at the most.
    assert finished[1:].max() <= 1200.0 + 6000.0
    assert finished[0] > finished[1:].max()
