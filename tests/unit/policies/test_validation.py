"""Validation of the shares that policies return."""

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
from fairlead.policies.rules.priority import PriorityPolicy, create_policy

HALF = np.full((2, 2), 0.5)


@dataclass(frozen=True)
class FixedShares:
    """A policy that returns fixed shares."""

    share: FloatArray

    def allocate(self, snap: Snapshot) -> Allocation:
        return job_allocation(snap, self.share)


def snapshot(**cluster: int) -> Snapshot:
    jobs = tuple(InstanceJob(id=name, speeds={"v100": 2.0, "k80": 1.0}) for name in ("a", "b"))
    return snapshot_of(Instance(Cluster.of(cluster), jobs))


def allocate(share: FloatArray) -> Allocation:
    return PriorityPolicy(FixedShares(share), "mine").allocate(snapshot(v100=1, k80=1))


def test_feasible_shares_are_returned_unchanged() -> None:
    assert allocate(HALF).share is HALF
    assert allocate(HALF * (1 + 1e-8)).share[0, 0] > 0.5


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([np.nan, 0.0], "'mine': job 'b' has a share of nan"),
        ([np.inf, 0.0], "'mine': job 'b' has a share of inf"),
        ([0.5, -0.1], "'mine': job 'b' has a share of -0.1"),
        ([0.5, 0.6], "'mine': job 'b' has shares of 1.1 in all"),
        ([0.6, 0.4], "'mine': 1.1 v100 allocated: expected at most 1; .* job 'b'"),
    ],
)
def test_infeasible_shares_are_rejected(row: list[float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        allocate(np.array([[0.5, 0.5], row]))


def test_shares_of_another_shape_are_rejected() -> None:
    with pytest.raises(
        UsageError, match="'mine': shares of shape 2 × 1: expected 2 rows and 2 columns"
    ):
        allocate(np.full((2, 1), 0.5))


@pytest.mark.parametrize("name", ["max-min", "fifo", "oef", "max-min:packed"])
def test_shares_of_bundled_policies_are_checked_too(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []
    monkeypatch.setattr(
        "fairlead.policies.rules.priority.check_allocation",
        lambda policy, _snap, _allocation: checked.append(policy),
    )
    create_policy(name).allocate(snapshot(v100=1, k80=1))
    assert checked == [name]
