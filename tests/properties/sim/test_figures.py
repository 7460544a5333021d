"""Metrics of a simulation are consistent, with finished and unfinished jobs."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.cluster import Cluster
from fairlead.model.events import NodeLost
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.model.tenants.tenant import Tenant
from fairlead.sim.driver import simulate
from fairlead.sim.metrics import Result, summarise
from fairlead.sim.physics.true_speeds import TrueSpeeds
from fairlead.sim.scenario import Scenario

ACCELERATORS = ("v100", "k80")
SPEEDS = SpeedTable(
    {
        SpeedKey("lstm", gang, accelerator): speed * gang
        for gang in (1, 2)
        for accelerator, speed in zip(ACCELERATORS, (4.0, 1.0), strict=True)
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
    solo = TrueSpeeds(whole, SPEEDS, scenario.jobs).solo_speeds()
    return summarise(
        record, whole, solo, policy="any", tenants=scenario.tenants, window=scenario.window
    )


def shares(result: Result) -> tuple[dict[str, float], dict[str, float]]:
    entitled = {row.tenant: row.entitled_share for row in result.tenants}
    return entitled, {row.tenant: row.received_share for row in result.tenants}


def test_figures_count_until_the_last_event_if_a_job_never_finishes() -> None:
    """Red uses the only device for 10 s, blue from 1000 s until the node is lost at 5000 s."""
    result = figures_of(
        Scenario(
            cluster=Cluster.of({"v100": 1}),
            speeds=SPEEDS,
            jobs=(job("a", 0.0, 40.0), job("b", 1000.0, NEVER, tenant="blue")),
            mechanism=create_mechanism("max-min"),
            node_events=(NodeLost(5000.0, "v100-0"),),
        )
    )
    assert result.unfinished == 1
    assert result.makespan_s == pytest.approx(10.0)
    # Rounds after the loss, in which nothing can run, do not count as idle time.
    assert result.utilization == pytest.approx(4010 / 5000)
    assert result.busy_share == {"v100": pytest.approx(4010 / 5000)}
    for share in shares(result):
        assert share == {"red": pytest.approx(10 / 4010), "blue": pytest.approx(4000 / 4010)}


def test_tenant_is_entitled_while_its_job_waits() -> None:
    """The only node is lost at 100 s; blue's job arrives at 50 s, when red holds the device."""
    result = figures_of(
        Scenario(
            cluster=Cluster.of({"v100": 1}),
            speeds=SPEEDS,
            jobs=(job("a", 0.0, NEVER), job("b", 50.0, NEVER, tenant="blue")),
            mechanism=create_mechanism("fifo"),
            node_events=(NodeLost(100.0, "v100-0"),),
        )
    )
    entitled, received = shares(result)
    assert result.utilization == pytest.approx(1.0)
    assert entitled == {"red": pytest.approx(0.75), "blue": pytest.approx(0.25)}
    assert received == {"red": pytest.approx(1.0), "blue": 0.0}


def test_tenants_with_jobs_are_entitled_by_their_weights() -> None:
    """Red and blue in a team of weight 3, and green; blue has jobs half of the time."""
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
        mechanism=create_mechanism("hierarchical"),
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
    "mechanism",
    [
        create_mechanism("max-min"),
        create_mechanism("max-min", "ideal"),
        create_mechanism("hadare"),
    ],
)
def test_jobs_running_at_the_end_of_the_window_count_with_their_device_time(
    mechanism: Any,
) -> None:
    """Both devices are busy from 0 to 100 s, one of them with a job outside the window."""
    two = Cluster.of({"v100": 2}, per_node=1)
    jobs = (job("long", 0.0, NEVER, tenant="blue"), job("a", 0.0, 400.0))
    scenario = Scenario(cluster=two, speeds=SPEEDS, jobs=jobs, mechanism=mechanism, window=(1, 2))
    result = figures_of(scenario)
    assert result.utilization == pytest.approx(1.0)
    entitled, received = shares(result)
    assert entitled == {"red": pytest.approx(0.5), "blue": pytest.approx(0.5)}
    assert received == entitled


def test_stuck_fluid_run_counts_until_its_last_event() -> None:
    """Blue cannot run on the device, contrary to the beliefs; the last event is at 300 s."""
    true = SpeedTable({SpeedKey("lstm", 1, "v100"): 4.0, SpeedKey("gan", 1, "k80"): 4.0})
    believed = SpeedTable({SpeedKey("lstm", 1, "v100"): 4.0, SpeedKey("gan", 1, "v100"): 4.0})
    stuck = replace(job("b", 100.0, NEVER, tenant="blue"), workload="gan")
    scenario = Scenario(
        cluster=Cluster.of({"v100": 1}),
        speeds=true,
        believed=believed,
        jobs=(job("a", 0.0, 40.0), stuck, replace(stuck, id="c", arrival_at=300.0)),
        mechanism=create_mechanism("max-min", "ideal"),
    )
    record, _ = simulate(scenario)
    solo = TrueSpeeds(scenario.cluster, true, scenario.jobs).solo_speeds()
    result = summarise(record, scenario.cluster, solo, policy="any")
    assert result.unfinished == 2
    assert result.utilization == pytest.approx(210 / 300)
    for share in shares(result):
        assert share == {"red": pytest.approx(10 / 210), "blue": pytest.approx(200 / 210)}


def test_deadline_missed_by_a_rounding_error_counts_as_met() -> None:
    """Each job has the device for 10 s; the third ends a millisecond late."""
    jobs = tuple(
        replace(job(f"{i}", 1e6 * i, 40.0), deadline_s=deadline_s)
        for i, deadline_s in enumerate((10.0, 10.0 - 1e-8, 10.0 - 1e-3, None))
    )
    scenario = Scenario(
        cluster=Cluster.of({"v100": 1}),
        speeds=SPEEDS,
        jobs=jobs,
        mechanism=create_mechanism("fifo"),
    )
    assert figures_of(scenario).slo_violations == 1


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    cluster = Cluster.of({name: draw(st.integers(2, 4)) for name in ACCELERATORS}, per_node=2)
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
        mechanism=create_mechanism(policy, fluid),
        node_events=[NodeLost(float(at), node.id) for at, node in events] if lost else (),
        restore_cost_s=draw(st.sampled_from([0.0, 7.5])),
        window=window,
    )


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios())
def test_utilization_is_at_most_1_and_shares_add_up_to_1(scenario: Scenario) -> None:
    """All nodes may be lost during the run, and the run may end at a window."""
    result = figures_of(scenario)
    rounding = 1e-9
    assert 0 <= result.utilization <= 1 + rounding
    assert all(0 <= share <= 1 + rounding for share in result.busy_share.values())
    entitled, received = shares(result)
    # If all nodes are lost before the first arrival, no time is counted.
    nothing = result.utilization == 0 and not any(entitled.values())
    assert sum(entitled.values()) == pytest.approx(1.0) or nothing
    assert sum(received.values()) == pytest.approx(1.0) or result.utilization == 0
    assert np.isfinite(list(entitled.values())).all()
