"""Jobs that are no longer kept leave little behind in the scheduler's tables."""

import gc
import tracemalloc
from typing import Any

import pytest

from fairlead.core import Scheduler, load_state, save_state, state_bytes
from fairlead.core.jobs import JobState
from fairlead.mechanisms.shares import Shares
from fairlead.model.cluster import Cluster
from fairlead.model.errors import ProtocolError
from fairlead.model.events import JobsRemoved, JobSubmitted
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.policies.max_min import MaxMin

ACCELERATORS = ("v100", "p100", "k80")
MAX_BYTES = 220
"""bytes per removed job: 112 of columns, 16 of lists, the rest spare room in lists and dicts"""


def scheduler() -> Scheduler[Any]:
    speeds = SpeedTable({SpeedKey("a", 1, name): 1.0 for name in ACCELERATORS})
    cluster = Cluster.of(dict.fromkeys(ACCELERATORS, 2))
    return Scheduler(cluster, speeds, Shares(MaxMin(), round_s=100.0))


def job(number: int) -> Job:
    steps, at = 1000.0 + number, 1e9 + number
    return Job(id=f"j{number + 1}", workload="a", total_steps=steps, arrival_at=at)


def test_a_removed_job_keeps_few_bytes_beside_its_number() -> None:
    made, count = scheduler(), 1023  # with the first one the table is full
    made.jobs.add(job(0))
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(1, count + 1):
            made.jobs.add(job(number))
            made.jobs.deactivate(number, JobState.FINISHED)
        kept = tracemalloc.get_traced_memory()[0] - before
        ids = tuple(made.jobs.ids[1:])
        made.handle(JobsRemoved(2e9, ids))
        del ids
        gc.collect()
        left = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert left < MAX_BYTES * count < kept
    assert made.jobs.number == {"j1": 0}
    assert made.jobs.add(job(count + 1)) == count + 1


def test_only_ended_jobs_are_removed_and_a_repeated_removal_changes_nothing() -> None:
    made = scheduler()
    for number in range(3):
        made.handle(JobSubmitted(1e9 + number, job(number)))
    made.jobs.deactivate(0, JobState.CANCELLED)
    before = state_bytes(made)
    with pytest.raises(ProtocolError, match="j1, j2"):
        made.handle(JobsRemoved(2e9, ("j1", "j2")))
    assert state_bytes(made) == before
    for _ in range(2):
        made.handle(JobsRemoved(2e9, ("j1",)))
    assert made.jobs.ids == ["", "j2", "j3"]
    assert made.jobs.jobs[0].tenant == "default"
    restored = scheduler()
    load_state(restored, save_state(made))
    assert state_bytes(restored) == state_bytes(made)
    assert restored.jobs.number == {"j2": 1, "j3": 2}
