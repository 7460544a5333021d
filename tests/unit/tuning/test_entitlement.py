"""A search is entitled as one job, however many trials it has."""

from collections.abc import Sequence

import numpy as np
import pytest

from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.model.plan import ABSENT
from fairlead.model.profiles import Profiles
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.model.tenants.weight_scope import searches_as_one_job
from fairlead.sim.driver import simulate
from fairlead.sim.record import Record
from fairlead.sim.scenario import Scenario

DEVICES, ROUND_S, STEPS_PER_S = 4, 60.0, 10.0
SPEEDS = SpeedTable({SpeedKey("m", gang, "p100"): STEPS_PER_S * gang for gang in (1, DEVICES)})


def run_until_first_ends(policy: str, jobs: Sequence[Job]) -> Record:
    """Simulate jobs on devices of one node until the first one has ended."""
    record, _ = simulate(
        Scenario(
            cluster=Cluster.of({"p100": DEVICES}, per_node=DEVICES),
            speeds=SPEEDS,
            jobs=jobs,
            mechanism=create_mechanism(policy, None, ROUND_S),
            window=(0, 1),
        )
    )
    return record


@pytest.mark.parametrize(
    ("policy", "tenant"),
    [
        ("max-min", "other"),
        ("max-min", "searcher"),
        ("hierarchical", "other"),
        ("hierarchical", "searcher"),
        ("tenant-max-min", "other"),
        ("oef", "other"),
    ],
)
def test_a_search_with_100_trials_and_one_job_get_half_of_the_cluster_each(
    policy: str, tenant: str
) -> None:
    whole = DEVICES * STEPS_PER_S * ROUND_S
    job = Job(id="one", workload="m", gang=DEVICES, total_steps=100 * whole, tenant=tenant)
    trials = [
        Job(id=f"t{i}", workload="m", total_steps=1e6, tenant="searcher", multijob="lr")
        for i in range(100)
    ]
    record = run_until_first_ends(policy, [job, *trials])
    device_s = record.device_s[:, 0]
    assert device_s[0] / device_s.sum() == pytest.approx(0.5, abs=0.02)
    assert device_s[1:].sum() / (DEVICES * record.ended_at) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(
    ("policy", "honours"),
    [
        ("gandiva", True),
        ("fairlead", True),
        ("finish-time", True),
        ("themis", True),
        ("isolated", True),
        ("tiresias", False),
    ],
)
def test_a_job_beside_a_search_ends_earlier_than_beside_as_many_jobs_if_weights_count(
    policy: str, honours: bool
) -> None:
    whole = DEVICES * STEPS_PER_S * ROUND_S
    ended_at = []
    for multijob in (None, "lr"):
        job = Job(id="one", workload="m", gang=DEVICES, total_steps=8 * whole)
        trials = [
            Job(id=f"t{i}", workload="m", total_steps=whole, multijob=multijob) for i in range(24)
        ]
        record = run_until_first_ends(policy, [job, *trials])
        ended_at.append(float(record.finished_at[0]))
    assert (ended_at[1] < 0.7 * ended_at[0]) == honours


def profiles(weight: list[float], search: list[int]) -> Profiles:
    ones = np.ones(len(weight), dtype=np.int64)
    speed = np.ones((len(weight), 1))
    return Profiles(speed, ones, np.array(weight), 0 * ones, search=np.array(search))


def test_trials_divide_the_greatest_weight_among_them_in_proportion() -> None:
    # Two trials of weight 2 and ten of 0.1 in search 0, a job without a search, and search 1.
    before = profiles([2.0, 0.1, 3.0, 0.5], [0, 0, ABSENT, 1])
    count = np.array([2, 10, 7, 1])
    weight = searches_as_one_job(before, count).weight
    assert weight.tolist() == pytest.approx([2.0 * 2 / 5, 0.1 * 2 / 5, 3.0, 0.5])
    assert (weight * count)[:2].sum() == pytest.approx(2.0)


def test_trials_that_wait_or_have_ended_do_not_count() -> None:
    before = profiles([2.0, 1.0], [0, 0])
    assert searches_as_one_job(before, np.array([0, 4])).weight.tolist() == [2.0, 0.25]
    assert searches_as_one_job(before, np.array([0, 1])) is before
