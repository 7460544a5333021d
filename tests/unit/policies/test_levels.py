"""Shares of agnostic, fifo, isolated and makespan policies."""

import numpy as np
import pytest

from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.policies.fifo import Fifo
from fairlead.policies.isolated import Isolated
from fairlead.policies.makespan import Makespan
from fairlead.policies.max_min import MaxMin


def _snap(cluster: dict[str, int], *jobs: InstanceJob) -> Snapshot:
    return snapshot_of(Instance(Cluster.of(cluster), jobs))


def test_agnostic_shares_are_spread_in_proportion_to_devices() -> None:
    jobs = [InstanceJob(id=str(i), speeds={"a": 9.0 - i, "b": 1.0 + i}) for i in range(6)]
    share = MaxMin(agnostic=True).allocate(_snap({"a": 1, "b": 3}, *jobs)).share
    np.testing.assert_allclose(share, np.tile([1 / 6, 3 / 6], (6, 1)), atol=1e-9)


def test_agnostic_job_that_cannot_use_an_accelerator_gets_its_time_on_the_others() -> None:
    only_b = InstanceJob(id="x", speeds={"b": 1.0})
    jobs = [InstanceJob(id=str(i), speeds={"a": 1.0, "b": 1.0}) for i in range(5)]
    share = MaxMin(agnostic=True).allocate(_snap({"a": 2, "b": 2}, only_b, *jobs)).share
    np.testing.assert_allclose(share.sum(axis=1), 4 / 6, rtol=1e-5)
    assert share[0, 0] == 0.0
    assert (share.sum(axis=0) <= 2 + 1e-9).all()
    np.testing.assert_allclose(share[1:], np.tile(share[1], (5, 1)))


def test_gang_gets_no_share_of_an_accelerator_with_too_few_devices() -> None:
    gang = InstanceJob(id="g", gang=4, speeds={"a": 9.0, "b": 1.0})
    for policy in (MaxMin(), MaxMin(agnostic=True), Makespan(), Isolated(), Fifo()):
        share = policy.allocate(_snap({"a": 2, "b": 4}, gang)).share
        assert share[0, 0] == 0.0, policy
        assert share[0, 1] > 0.0, policy


def test_fifo_serves_in_order_of_arrival_on_the_fastest_accelerator_left() -> None:
    jobs = [InstanceJob(id=str(i), speeds={"a": 2.0, "b": 1.0}, elapsed_s=i) for i in range(3)]
    share = Fifo().allocate(_snap({"a": 1, "b": 1}, *jobs)).share
    assert share.tolist() == [[0, 0], [0, 1], [1, 0]]


def test_fifo_lets_no_job_pass_a_waiting_gang() -> None:
    first = InstanceJob(id="0", speeds={"a": 1.0}, elapsed_s=9)
    wide = InstanceJob(id="1", gang=2, speeds={"a": 1.0}, elapsed_s=5)
    last = InstanceJob(id="2", speeds={"a": 1.0}, elapsed_s=1)
    share = Fifo().allocate(_snap({"a": 2}, first, wide, last)).share
    assert share[:, 0].tolist() == [1, 0, 0]


def test_isolated_gives_an_equal_part_of_every_accelerator() -> None:
    jobs = [InstanceJob(id=str(i), gang=1 + i, speeds={"a": 1.0, "b": 1.0}) for i in range(2)]
    share = Isolated().allocate(_snap({"a": 2, "b": 4}, *jobs)).share
    np.testing.assert_allclose(share, [[1 / 3, 2 / 3], [1 / 3, 2 / 3]])


def test_makespan_finishes_all_jobs_together_if_possible() -> None:
    jobs = [
        InstanceJob(id=str(i), speeds={"a": 1.0}, steps_left=s) for i, s in enumerate((30, 60))
    ]
    allocation = Makespan().allocate(_snap({"a": 1}, *jobs))
    np.testing.assert_allclose(allocation.share[:, 0], [1 / 3, 2 / 3], atol=1e-9)
    assert allocation.objective == pytest.approx(90.0)
    assert allocation.prove is not None
    assert allocation.prove().bound == pytest.approx(90.0)
