"""Gain by packing on the reference trace (Gavel §7.3), and its loss by rounds."""

import random

import numpy as np
import pytest
from tests.support.shared_data import needs_shared, shared

from fairlead.files import read_cluster, read_speeds, read_trace
from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedTable
from fairlead.sim.driver import simulate
from fairlead.sim.generate import Recipe, generate
from fairlead.sim.scenario import Scenario


def average_jct_s(
    policy: str,
    cluster: Cluster,
    speeds: SpeedTable,
    jobs: list[Job],
    mechanism: str | None = None,
) -> float:
    record, _ = simulate(
        Scenario(
            cluster=cluster,
            speeds=speeds,
            jobs=jobs,
            mechanism=create_mechanism(policy, mechanism, 360.0),
        )
    )
    jct = record.finished_at - np.array([job.arrival_at for job in jobs])
    assert not np.isnan(jct).any()
    return float(jct.mean())


@pytest.fixture(scope="module")
def speeds() -> SpeedTable:
    return read_speeds(shared("data/gavel/simulation_throughputs.json.gz"))


@needs_shared
@pytest.mark.slow
def test_packing_gains_at_least_8_percent_on_the_continuous_trace(speeds: SpeedTable) -> None:
    """Measured: 78,500 s packed against 104,500 s, a quarter less; 77,400 s if fluid.

    All 300 jobs of the trace, which take four times as long: 141,600 s against 214,100 s.
    """
    cluster = read_cluster("v100=4,p100=4,k80=4")
    trace = read_trace(shared("reference/gavel/cont_single_300_lam1800_seed0.csv.gz"))
    jobs = list(trace.jobs[:120])
    alone = average_jct_s("max-min", cluster, speeds, jobs)
    packed = average_jct_s("max-min:packed", cluster, speeds, jobs)
    fluid = average_jct_s("max-min:packed", cluster, speeds, jobs, "ideal")
    assert packed <= 0.92 * alone
    assert packed == pytest.approx(fluid, rel=0.025)


@needs_shared
@pytest.mark.parametrize("seed", [1, 2])
def test_rounds_of_units_lose_little_more_to_gangs_than_rounds_of_jobs(
    speeds: SpeedTable, seed: int
) -> None:
    """Gangs of up to 8 on 8 devices cost rounds of jobs 4 to 5 % of the fluid's time.

    Rounds of units do not exchange small jobs for gangs: they lose 6 to 7 %, packed 7 to 9 %.
    """
    cluster = read_cluster("v100=8,p100=8,k80=8")
    recipe = Recipe(kind="continuous-multiple", jobs=60, rate=4.0)
    jobs = list(generate(recipe, speeds, random.Random(seed), cluster))

    def loss(policy: str, mechanism: str) -> float:
        rounds = average_jct_s(policy, cluster, speeds, jobs, mechanism)
        return rounds / average_jct_s(policy, cluster, speeds, jobs, "ideal")

    alone = loss("max-min", "shares")
    assert loss("max-min", "units") <= alone + 0.03
    assert loss("max-min:packed", "units") <= alone + 0.04
