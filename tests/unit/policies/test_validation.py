"""Policies from outside the package: what they return is checked where it enters."""

from dataclasses import dataclass

import numpy as np
import pytest

from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Cluster
from fairlead.model.errors import UsageError
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.policies.base import job_allocation
from fairlead.policies.rules.priority import PriorityPolicy

HALF = np.full((2, 2), 0.5)


@dataclass(frozen=True)
class Given:
    """A policy that gives what it is told to."""

    share: FloatArray

    def allocate(self, snap: Snapshot) -> Allocation:
        return job_allocation(snap, self.share)


def asked(share: FloatArray, **cluster: int) -> Allocation:
    jobs = tuple(InstanceJob(id=name, speeds={"v100": 2.0, "k80": 1.0}) for name in ("a", "b"))
    snap = snapshot_of(Instance(Cluster.of(cluster or {"v100": 1, "k80": 1}), jobs))
    return PriorityPolicy(Given(share), "mine").allocate(snap)


def test_shares_that_a_cluster_can_give_are_taken_as_they_are() -> None:
    assert asked(HALF).share is HALF
    assert asked(HALF * (1 + 1e-8)).share[0, 0] > 0.5


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ([np.nan, 0.0], "'mine': job 'b' has a share of nan"),
        ([np.inf, 0.0], "'mine': job 'b' has a share of inf"),
        ([0.5, -0.1], "'mine': job 'b' has a share of -0.1"),
        ([0.5, 0.6], "'mine': job 'b' has shares of 1.1 in all"),
        ([0.6, 0.4], "'mine': its shares hold 1.1 v100, of which there are 1, .* job 'b'"),
    ],
)
def test_shares_that_no_cluster_can_give_are_refused(row: list[float], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        asked(np.array([[0.5, 0.5], row]))


def test_a_table_of_another_shape_is_refused() -> None:
    with pytest.raises(UsageError, match="'mine': its shares are a table of 2 × 1"):
        asked(np.full((2, 1), 0.5))
