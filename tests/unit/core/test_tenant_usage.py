"""Past usage changes weights: tenants above their entitlement get less until it decays."""

from typing import Literal

import numpy as np
import pytest

from fairlead.core import Scheduler, encode_event, replay, state_bytes
from fairlead.core.tenant_usage import Usage
from fairlead.mechanisms.shares import Shares
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.model.events import (
    Event,
    HistoryChanged,
    JobSubmitted,
    PlanDue,
    TenantChanged,
)
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.tree import TenantTree
from fairlead.model.tenants.usage_decay import History
from fairlead.policies.max_min import MaxMin
from fairlead.sim.driver import simulate
from fairlead.sim.record import Record
from fairlead.sim.scenario import Scenario

HOUR = 3600.0
TWO = (Tenant("a"), Tenant("b"))


def counted(history: History, *usages: tuple[float, list[float]]) -> Usage:
    usage, total = Usage(), np.zeros(2)
    usage.history = history
    for at, more in usages:
        total = total + more
        usage.count(at, total, TWO)
    return usage


def test_equal_usage_changes_no_weight() -> None:
    assert counted(History(HOUR), (HOUR, [5.0, 5.0])).factor.tolist() == [1.0, 1.0]


def test_tenant_with_all_usage_has_half_its_weight_and_the_other_twice() -> None:
    assert counted(History(HOUR), (HOUR, [10.0, 0.0])).factor.tolist() == [0.5, 2.0]


def test_usage_halves_every_half_life() -> None:
    usage = counted(History(HOUR), (HOUR, [8.0, 0.0]), (2 * HOUR, [0.0, 4.0]))
    assert usage.used.tolist() == [4.0, 4.0]
    assert usage.factor.tolist() == [1.0, 1.0]


def test_usage_never_decays_without_a_half_life() -> None:
    usage = counted(History(), (HOUR, [8.0, 0.0]), (900 * HOUR, [0.0, 8.0]))
    assert usage.used.tolist() == [8.0, 8.0]


def test_factors_stay_between_an_eighth_and_two() -> None:
    many = [Tenant("greedy"), *(Tenant(f"t{i}") for i in range(40))]
    usage = Usage()
    usage.history = History(HOUR)
    usage.count(HOUR, np.array([1.0] + [0.0] * 40), many)
    assert usage.factor.tolist() == [0.125] + [2.0] * 40


def test_entitlement_is_divided_down_the_tenant_tree() -> None:
    tree = [Tenant("x", 3.0), Tenant("y", 1.0), Tenant("x1", 1.0, "x"), Tenant("x2", 2.0, "x")]
    assert TenantTree(tree).entitled_shares() == pytest.approx([0.75, 0.25, 0.25, 0.5])


@pytest.mark.parametrize("half_life", [0.0, -1.0, float("nan")])
def test_half_life_must_be_positive(half_life: float) -> None:
    with pytest.raises(InputError, match="half_life_s"):
        History(half_life)


# One device, two tenants. Only a has a job for a day; then b arrives, and both have work for
# more than another day.
CLUSTER = Cluster.of({"v100": 1})
SPEEDS = SpeedTable({SpeedKey("m", 1, "v100"): 1.0})
JOBS = (
    Job(id="a", workload="m", total_steps=48 * HOUR, tenant="a"),
    Job(id="b", workload="m", total_steps=8 * HOUR, tenant="b", arrival_at=24 * HOUR),
)


def run(history: History | None, events: list[Event] | None = None) -> tuple[Record, bytes]:
    record, scheduler = simulate(
        Scenario(
            cluster=CLUSTER,
            speeds=SPEEDS,
            jobs=JOBS,
            mechanism=Shares(MaxMin()),
            tenants=TWO,
            history=history,
            on_event=events.append if events is not None else None,
        )
    )
    assert scheduler is not None
    return record, state_bytes(scheduler)


def test_tenant_without_past_usage_catches_up() -> None:
    without = run(None)[0].finished_at[1] - 24 * HOUR
    caught_up = run(History(24 * HOUR))[0].finished_at[1] - 24 * HOUR
    # With equal weights b has half of the device; with a's past usage up to four fifths.
    assert without == pytest.approx(16 * HOUR, rel=0.02)
    assert caught_up < 12 * HOUR


def test_short_half_life_restores_equal_weights_soon() -> None:
    long, short = (run(History(hours * HOUR))[0].finished_at[1] for hours in (48, 1))
    assert long < short


def test_replay_gives_the_same_weights() -> None:
    events: list[Event] = []
    _, state = run(History(24 * HOUR), events)
    assert any(isinstance(event, HistoryChanged) for event in events)
    again = replay(
        Scheduler(CLUSTER, SPEEDS, Shares(MaxMin())), [encode_event(event) for event in events]
    )
    assert state_bytes(again) == state


@pytest.mark.parametrize("measure", ["devices", "speed"])
@pytest.mark.parametrize("before", [None, History(24 * HOUR)])
def test_usage_counts_from_the_change_of_history_on(
    before: History | None, measure: Literal["devices", "speed"]
) -> None:
    """Tenant a has had the device for 12 hours at the change, and has it for one more."""
    events: list[Event] = []
    run(before, events)
    scheduler = Scheduler(CLUSTER, SPEEDS, Shares(MaxMin()))
    for event in events:
        if event.at <= 12 * HOUR:
            scheduler.handle(event)
    scheduler.handle(HistoryChanged(12 * HOUR, History(24 * HOUR, measure)))
    scheduler.handle(PlanDue(13 * HOUR))
    assert scheduler.usage.used.tolist() == [HOUR, 0.0]
    assert scheduler.usage.factor.tolist() == [0.5, 2.0]


def test_usage_by_speed_charges_more_for_faster_accelerators() -> None:
    cluster = Cluster.of({"v100": 1, "k80": 1})
    speeds = SpeedTable(
        {
            SpeedKey("m", 1, "v100"): 3.0,
            SpeedKey("m", 1, "k80"): 1.0,
        }
    )
    used = {}
    for measure in ("devices", "speed"):
        scheduler = Scheduler(cluster, speeds, Shares(MaxMin()))
        scheduler.handle(TenantChanged(0.0, TWO[0]))
        scheduler.handle(TenantChanged(0.0, TWO[1]))
        scheduler.handle(HistoryChanged(0.0, History(HOUR, measure)))
        for name in "ab":
            scheduler.handle(
                JobSubmitted(0.0, Job(id=name, workload="m", total_steps=9e9, tenant=name))
            )
        scheduler.jobs.received_s[0] = [10.0, 0.0]
        scheduler.jobs.received_s[1] = [0.0, 10.0]
        used[measure] = scheduler.snapshot_builder.used(0.0, scheduler.usage).tolist()
    assert used["devices"] == [10.0, 10.0]
    assert used["speed"] == pytest.approx([15.0, 5.0])
