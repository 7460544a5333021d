"""The figures of a simulation hold together, whether or not all of its jobs ever end."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.mechanisms.factory import realise
from fairlead.model.cluster import Cluster
from fairlead.model.events import NodeLost
from fairlead.model.job import Job, Tenant
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.driver import simulate
from fairlead.sim.metrics import Result, summarise
from fairlead.sim.physics.true_speeds import Truth
from fairlead.sim.scenario import Scenario

KINDS = ("v100", "k80")
SPEEDS = SpeedTable(
    {
        SpeedKey("lstm", gang, kind): speed * gang
        for gang in (1, 2)
        for kind, speed in zip(KINDS, (4.0, 1.0), strict=True)
    }
)
NEVER = 1e9


def job(name: str, arrival_at: float, steps: float, *, gang: int = 1, tenant: str = "red") -> Job:
    return Job(
        id=name,
        workload="lstm",
        gang=gang,
        total_steps=steps,
        arrival_at=arrival_at,
        tenant=tenant,
    )


def figures_of(scenario: Scenario) -> Result:
    record, _ = simulate(scenario)
    whole = scenario.whole_cluster
    alone = Truth(whole, SPEEDS, scenario.jobs).alone()
    return summarise(
        record, whole, alone, policy="any", tenants=scenario.tenants, window=scenario.window
    )


def shares(result: Result) -> tuple[dict[str, float], dict[str, float]]:
    entitled = {row.tenant: row.entitled_share for row in result.tenants}
    return entitled, {row.tenant: row.received_share for row in result.tenants}


def test_figures_reach_to_the_end_where_the_last_job_never_finishes() -> None:
    """Red uses the only device for 10 s, blue from 1000 s until it is lost for good at 5000 s."""
    result = figures_of(
        Scenario(
            cluster=Cluster.of({"v100": 1}),
            speeds=SPEEDS,
            jobs=(job("a", 0.0, 40.0), job("b", 1000.0, NEVER, tenant="blue")),
            mechanism=realise("max-min"),
            node_events=(NodeLost(5000.0, "v100-0"),),
        )
    )
    assert result.unfinished == 1
    assert result.makespan_s == pytest.approx(10.0)
    # Rounds in which nothing can run any more, after the loss, are not counted as idle time.
    assert result.utilization == pytest.approx(4010 / 5000)
    assert result.busy_share == {"v100": pytest.approx(4010 / 5000)}
    for share in shares(result):
        assert share == {"red": pytest.approx(10 / 4010), "blue": pytest.approx(4000 / 4010)}


def test_a_tenant_whose_job_never_starts_is_entitled_as_long_as_it_waits() -> None:
    """The only node is lost at 100 s; blue's job comes at 50 s, when red's has all of it."""
    result = figures_of(
        Scenario(
            cluster=Cluster.of({"v100": 1}),
            speeds=SPEEDS,
            jobs=(job("a", 0.0, NEVER), job("b", 50.0, NEVER, tenant="blue")),
            mechanism=realise("fifo"),
            node_events=(NodeLost(100.0, "v100-0"),),
        )
    )
    entitled, received = shares(result)
    assert result.utilization == pytest.approx(1.0)
    assert entitled == {"red": pytest.approx(0.75), "blue": pytest.approx(0.25)}
    assert received == {"red": pytest.approx(1.0), "blue": 0.0}


def test_tenants_with_weights_are_entitled_by_these_among_those_present() -> None:
    """Red and blue inside a team of weight 3, green beside it; blue is there half of the time."""
    tenants = (
        Tenant("team", weight=3.0),
        Tenant("red", weight=1.0, parent="team"),
        Tenant("blue", weight=2.0, parent="team"),
    )
    jobs = (
        job("a", 0.0, NEVER),
        job("b", 0.0, NEVER),
        job("c", 0.0, NEVER, tenant="green"),
        job("d", 50.0, NEVER, tenant="blue"),
    )
    scenario = Scenario(
        cluster=Cluster.of({"v100": 4}),
        speeds=SPEEDS,
        jobs=jobs,
        mechanism=realise("hierarchical"),
        tenants=tenants,
        node_events=(NodeLost(100.0, "v100-0"),),
    )
    entitled, _ = shares(figures_of(scenario))
    assert entitled == {
        "red": pytest.approx((0.75 + 0.25) / 2),
        "green": pytest.approx(0.25),
        "blue": pytest.approx(0.5 / 2),
    }
    by_jobs, _ = shares(figures_of(replace(scenario, tenants=())))
    assert by_jobs == {
        "red": pytest.approx((2 / 3 + 2 / 4) / 2),
        "green": pytest.approx((1 / 3 + 1 / 4) / 2),
        "blue": pytest.approx(1 / 8),
    }


@pytest.mark.parametrize(
    "mechanism", [realise("max-min"), realise("max-min", "ideal"), realise("hadare")]
)
def test_jobs_that_still_run_when_the_window_is_done_count_with_what_they_held(
    mechanism: Any,
) -> None:
    """Both devices are busy from 0 to 100 s, one of them with a job that is not in the window."""
    two = Cluster.of({"v100": 2}, per_node=1)
    jobs = (job("long", 0.0, NEVER, tenant="blue"), job("a", 0.0, 400.0))
    scenario = Scenario(cluster=two, speeds=SPEEDS, jobs=jobs, mechanism=mechanism, window=(1, 2))
    result = figures_of(scenario)
    assert result.utilization == pytest.approx(1.0)
    entitled, received = shares(result)
    assert entitled == {"red": pytest.approx(0.5), "blue": pytest.approx(0.5)}
    assert received == entitled


def test_a_fluid_run_that_gets_stuck_counts_to_its_last_event() -> None:
    """Blue's device is believed to be good for it, and is not; the last event is at 300 s."""
    true = SpeedTable({SpeedKey("lstm", 1, "v100"): 4.0, SpeedKey("gan", 1, "k80"): 4.0})
    believed = SpeedTable({SpeedKey("lstm", 1, "v100"): 4.0, SpeedKey("gan", 1, "v100"): 4.0})
    stuck = replace(job("b", 100.0, NEVER, tenant="blue"), workload="gan")
    scenario = Scenario(
        cluster=Cluster.of({"v100": 1}),
        speeds=true,
        believed=believed,
        jobs=(job("a", 0.0, 40.0), stuck, replace(stuck, id="c", arrival_at=300.0)),
        mechanism=realise("max-min", "ideal"),
    )
    record, _ = simulate(scenario)
    alone = Truth(scenario.cluster, true, scenario.jobs).alone()
    result = summarise(record, scenario.cluster, alone, policy="any")
    assert result.unfinished == 2
    assert result.utilization == pytest.approx(210 / 300)
    for share in shares(result):
        assert share == {"red": pytest.approx(10 / 210), "blue": pytest.approx(200 / 210)}


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    cluster = Cluster.of({kind: draw(st.integers(2, 4)) for kind in KINDS}, per_node=2)
    jobs = sorted(
        (
            job(
                f"j{i}",
                float(draw(st.integers(0, 3000))),
                float(draw(st.sampled_from([10, 2000, 30_000]))),
                gang=draw(st.sampled_from([1, 1, 2])),
                tenant=draw(st.sampled_from(["red", "blue"])),
            )
            for i in range(draw(st.integers(1, 8)))
        ),
        key=lambda job: job.arrival_at,
    )
    policies = ["max-min", "fifo", "max-min:packed", "gandiva-fair", "hadar", "hadare"]
    policy, fluid = draw(
        st.sampled_from([*((name, None) for name in policies), ("max-min", "ideal")])
    )
    window = None
    if draw(st.booleans()):
        first = draw(st.integers(0, len(jobs) - 1))
        window = first, draw(st.integers(first + 1, len(jobs)))
    lost = draw(st.booleans())
    at = sorted(draw(st.lists(st.integers(1, 4000), min_size=4, max_size=4)))
    events = zip(at, cluster.nodes, strict=False)
    return Scenario(
        cluster=cluster,
        speeds=SPEEDS,
        jobs=jobs,
        mechanism=realise(policy, fluid),
        node_events=[NodeLost(float(at), node.id) for at, node in events] if lost else (),
        restore_cost_s=draw(st.sampled_from([0.0, 7.5])),
        window=window,
    )


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios())
def test_no_more_is_used_than_there_is_and_shares_add_up(scenario: Scenario) -> None:
    """All nodes may be lost for good in the course of time, and the run may end at a window."""
    result = figures_of(scenario)
    rounding = 1e-9
    assert 0 <= result.utilization <= 1 + rounding
    assert all(0 <= share <= 1 + rounding for share in result.busy_share.values())
    entitled, received = shares(result)
    # Where all was lost before the first job came, no time has passed.
    nothing = result.utilization == 0 and not any(entitled.values())
    assert sum(entitled.values()) == pytest.approx(1.0) or nothing
    assert sum(received.values()) == pytest.approx(1.0) or result.utilization == 0
    assert np.isfinite(list(entitled.values())).all()
