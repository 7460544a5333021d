"""Guarantees hold in every round, under every mechanism that stops jobs."""

import random
from dataclasses import replace

import pytest
from tests.support.rounds import POLICIES, Rounds

from fairlead.mechanisms.factory import create_live_mechanism
from fairlead.mechanisms.guarantees.needs import fitting_jobs
from fairlead.model.capabilities import capabilities_of
from fairlead.model.job import Job
from fairlead.model.tenants.tenant import Tenant


def job(rng: random.Random, number: int, *, largest: int = 3) -> Job:
    return Job(
        id=f"j{number}",
        workload=rng.choice(["big", "small", "small", "old"]),
        gang=rng.choice([1, 1, 2, largest]),
        total_steps=1e6,
        tenant=rng.choice("abbbc"),
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_every_round_meets_the_guarantee_as_far_as_whole_gangs_can_use_it(policy: str) -> None:
    for seed in range(2):
        rng = random.Random(seed)
        devices = rng.choice([1, 2])
        rounds = Rounds(policy, [Tenant("a", guarantee={"v100": devices})])
        for number in range(30):
            if rng.random() < 0.3 or number < 12:
                rounds.submit(job(rng, number))
            if rng.random() < 0.3:
                rounds.end_some_job(rng)
            rounds.round()
            missing = devices - rounds.held("a", "v100")
            assert all(gang > missing for gang in rounds.unserved("a", "v100")), (seed, number)


def test_nested_and_competing_guarantees_hold_together() -> None:
    tenants = [
        Tenant("team", guarantee={"v100": 2}),
        Tenant("a", parent="team", guarantee={"v100": 1}),
        Tenant("c", parent="team"),
        Tenant("b", guarantee={"v100": 1, "k80": 1}),
    ]
    rounds = Rounds("max-min", tenants)
    for number, (tenant, workload) in enumerate(
        [("a", "big"), ("b", "big"), ("b", "old"), ("c", "big"), ("c", "small"), ("a", "small")]
    ):
        steps = 1e6
        rounds.submit(Job(id=f"j{number}", workload=workload, total_steps=steps, tenant=tenant))
    for _ in range(20):
        rounds.round()
        assert rounds.held("a", "v100") >= 1
        assert rounds.held("b", "v100") >= 1
        assert rounds.held("b", "k80") >= 1
        assert rounds.held("a", "v100") + rounds.held("c", "v100") >= 2


def test_a_waiting_job_of_the_holder_takes_a_guaranteed_device_that_falls_idle() -> None:
    rounds = Rounds("max-min", [Tenant("a", guarantee={"v100": 1})])
    only = ("v100",)
    for number, tenant in enumerate("bbbbbbaaa"):
        one = Job(id=f"{tenant}{number}", workload="big", total_steps=1e6, tenant=tenant)
        rounds.submit(replace(one, accelerators=only) if tenant == "a" else one)
    rounds.round()
    for left in (2, 1):
        rounds.end("a")
        assert len(rounds.unserved("a", "v100")) < left
        assert rounds.held("a", "v100") >= 1


def test_a_mechanism_that_stops_nothing_gives_borrowed_devices_back_when_they_fall_idle() -> None:
    assert not capabilities_of(create_live_mechanism("capacity")).stops_jobs
    rounds = Rounds("capacity", [Tenant("a", guarantee={"v100": 1})])
    for number in range(6):
        rounds.submit(Job(id=f"b{number}", workload="big", total_steps=1e6, tenant="b"))
    rounds.round()
    rounds.submit(
        Job(id="a0", workload="big", total_steps=1e6, tenant="a", accelerators=("v100",))
    )
    rounds.round()
    assert rounds.held("a", "v100") == 0
    rounds.end("b", count=5)
    assert rounds.held("a", "v100") == 1


def test_fitting_jobs_uses_most_devices_and_prefers_earlier_gangs() -> None:
    assert fitting_jobs([1, 2, 1], 2) == [0, 2]
    assert fitting_jobs([1, 2], 2) == [1]
    assert fitting_jobs([3, 1], 2) == [1]
    assert fitting_jobs([5], 2) == []
    assert fitting_jobs([], 4) == []
