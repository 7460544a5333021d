"""AlloX against the original Gavel's: its speeds, traces and clusters, no restore cost."""

import json
from functools import cache

import numpy as np
import pytest
from tests.support.shared_data import needs_shared, shared

from fairlead.files import read_cluster, read_speeds, read_trace
from fairlead.mechanisms.factory import create_mechanism
from fairlead.sim.driver import simulate
from fairlead.sim.record import Record
from fairlead.sim.scenario import Scenario

pytestmark = [needs_shared, pytest.mark.reference]

CONTINUOUS = "cont_single_300_lam1800_seed0.csv.gz", "v100=12,p100=12,k80=12"
STATIC = "static_single_100_seed0.csv.gz", "v100=6,p100=6,k80=6"
LEAST_STATIC_S = 85818.557261629
"""the least average completion time without preemption: an assignment problem solved by SciPy"""


@cache
def _allox(case: tuple[str, str]) -> tuple[float, Record]:
    jobs = read_trace(shared("reference/gavel") / case[0]).jobs
    record, _ = simulate(
        Scenario(
            cluster=read_cluster(case[1]),
            speeds=read_speeds(shared("data/gavel/simulation_throughputs.json.gz")),
            jobs=jobs,
            mechanism=create_mechanism("allox", None, 360.0),
        )
    )
    return float((record.finished_at - [job.arrival_at for job in jobs]).mean()), record


def test_continuous_trace_completes_as_fast_as_under_gavels_allox() -> None:
    runs = json.loads(shared("reference/gavel/simulations.json").read_text())
    (gavels,) = [r for r in runs if r["policy"] == "allox" and r["trace"] == CONTINUOUS[0]]
    average, _ = _allox(CONTINUOUS)
    assert average <= 1.03 * gavels["avg_jct_s"]


def test_static_trace_reaches_the_least_average_possible_without_preemption() -> None:
    average, _ = _allox(STATIC)
    assert average == pytest.approx(LEAST_STATIC_S, rel=1e-9)


@pytest.mark.parametrize("case", [CONTINUOUS, STATIC], ids=["continuous", "static"])
def test_a_job_that_has_started_stays_until_it_is_done(case: tuple[str, str]) -> None:
    _, record = _allox(case)
    assert not record.preemptions.any()
    assert (np.count_nonzero(record.device_s, axis=1) == 1).all()
