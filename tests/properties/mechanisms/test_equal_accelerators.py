"""Jobs do not change places between accelerators that are believed equally fast."""

import numpy as np
import pytest
from tests.support.rounds import POLICIES, Rounds

from fairlead.mechanisms._rounds.equal_accelerators import keep_in_place
from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.job import Job
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.model.speeds.table import SpeedTable
from fairlead.model.tenants.tenant import Tenant

ASSUMED = SpeedTable({}, assumed=1.0)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("tenants", [("a", "a"), ("a", "b")], ids=["one tenant", "two tenants"])
def test_equal_jobs_settle_within_three_rounds_and_stop_moving(
    policy: str, tenants: tuple[str, str]
) -> None:
    rounds = Rounds(policy, each=1, speeds=ASSUMED)
    for tenant in tenants:
        job_id = f"{tenant}{len(rounds.scheduler.jobs)}"
        rounds.submit(Job(id=job_id, workload="", total_steps=1e6, tenant=tenant))
    places = []
    for _ in range(12):
        rounds.round()
        places.append(rounds.scheduler.jobs.on[:2].tolist())
    assert sorted(places[3]) == [0, 1]
    assert places[3:] == [places[3]] * 9


def snapshot(
    speeds: dict[str, float],
    gangs: tuple[int, ...],
    counts: dict[str, int],
    tenants: tuple[Tenant, ...] = (Tenant("t"),),
) -> Snapshot:
    jobs = tuple(
        InstanceJob(id=f"j{i}", speeds=speeds, tenant=tenants[0].id, gang=gang)
        for i, gang in enumerate(gangs)
    )
    return snapshot_of(Instance(Cluster.of(counts), jobs, tenants))


@pytest.mark.parametrize("seed", range(20))
def test_time_of_jobs_and_use_of_devices_stay_within_their_limits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = {"a": 3, "b": 2, "c": 4}
    gangs = tuple(rng.integers(1, 3, 6).tolist())
    snap = snapshot(dict.fromkeys(counts, 2.0), gangs, counts)
    share = rng.random((6, 3))
    share /= np.maximum(share.sum(axis=1, keepdims=True), 1.0)
    share /= np.maximum((share * snap.gang[:, None]).sum(axis=0) / snap.capacity, 1.0)
    snap.on[:] = rng.integers(-1, 3, 6)
    moved = keep_in_place(snap, share)
    assert moved.sum(axis=1) == pytest.approx(share.sum(axis=1))
    assert ((moved * snap.gang[:, None]).sum(axis=0) <= snap.capacity + 1e-9).all()
    assert (moved >= 0).all()
    # At most as many jobs are divided as there are accelerators less one, besides those moved.
    assert np.count_nonzero(moved) <= np.count_nonzero(share)


def test_shares_stay_where_speeds_quotas_or_gangs_differ() -> None:
    share = np.full((2, 2), 0.5)
    counts = {"a": 1, "b": 1}
    unequal = snapshot({"a": 1.0, "b": 1.01}, (1, 1), counts)
    assert keep_in_place(unequal, share) is share
    limited = (Tenant("t", guarantee={"a": 1.0}),)
    assert keep_in_place(snapshot({"a": 1.0, "b": 1.0}, (1, 1), counts, limited), share) is share
    equal = snapshot({"a": 1.0, "b": 1.0}, (1, 1), counts)
    equal.on[:] = [1, 0]
    assert keep_in_place(equal, share).tolist() == [[0.0, 1.0], [1.0, 0.0]]
