"""Gandiva's single jobs that wait for idle devices, found at once or one by one."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairlead.mechanisms.gandiva.memory import GandivaMemory
from fairlead.mechanisms.gandiva.waiting import waiting_singles, waiting_units
from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import snapshot_of

SERVERS = 3


@given(st.data())
def test_single_jobs_that_wait_are_those_found_one_by_one(data: st.DataObject) -> None:
    cluster = Cluster.of({"k0": 6})
    numbers = st.sets(st.integers(0, 9), min_size=1, max_size=8)
    jobs, homed = sorted(data.draw(numbers)), data.draw(st.permutations(range(10)))
    homed = homed[: data.draw(st.integers(1, 8))]
    servers = data.draw(
        st.lists(st.integers(0, SERVERS - 1), min_size=len(homed), max_size=len(homed))
    )
    counts = st.lists(st.integers(0, 2), min_size=SERVERS, max_size=SERVERS)
    size, idle = np.array(data.draw(counts)), np.array(data.draw(counts))
    instance = Instance(
        cluster, tuple(InstanceJob(id=str(job), speeds={"k0": 1.0}) for job in jobs)
    )
    rows = st.integers(-1, len(jobs) - 1)
    holds = np.array([data.draw(st.lists(rows, min_size=6, max_size=6))])
    snap = replace(snapshot_of(instance), job=np.array(jobs), holds=holds)
    memory = replace(
        GandivaMemory.empty(),
        units=tuple((job,) for job in homed),
        homes=tuple(((server, 1),) for server in servers),
    )
    holding = {jobs[row] for row in holds[0].tolist() if row >= 0}
    expected = waiting_units(memory, size.tolist(), idle.tolist(), holding, set(jobs))
    assert waiting_singles(memory, snap, size, idle) == expected
