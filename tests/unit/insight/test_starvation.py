"""Explanations name the priority, weight, guarantee or limit that starves a job."""

from dataclasses import replace
from typing import Any

import pytest

from fairlead.insight.explain.explain import explain
from fairlead.insight.explain.text import paragraphs
from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import snapshot_of
from fairlead.model.tenants.tenant import Tenant
from fairlead.policies.rules.priority import create_policy


def text_of(
    *jobs: InstanceJob, tenants: tuple[Tenant, ...] = (), policy: str = "max-min", see: str = ""
) -> str:
    instance = Instance(Cluster.of({"v100": 2}), jobs, tenants)
    chosen = create_policy(policy)
    explanation = explain(
        snapshot_of(instance), chosen, "mine", name=policy, can_see=lambda t: not see or t == see
    )
    return " ".join(paragraphs(explanation))


def job(name: str, tenant: str, **values: Any) -> InstanceJob:
    made = InstanceJob(id=name, speeds={"v100": 1.0}, tenant=tenant, steps_left=100.0)
    return replace(made, **values)


MINE = job("mine", "a")


def test_a_starved_job_names_the_jobs_of_a_higher_priority() -> None:
    loud = [job(f"loud{i}", "b", priority=1000) for i in range(2)]
    text = text_of(MINE, *loud)
    assert "jobs of a higher priority precede it (0): loud0 of tenant b, priority 1000" in text
    hidden = text_of(MINE, *loud, see="a")
    assert "a job of another tenant, priority 1000" in hidden
    assert "loud0" not in hidden


def test_a_starved_job_names_tenants_of_a_higher_priority() -> None:
    tenants = (Tenant("a"), Tenant("b", priority=3))
    text = text_of(MINE, job("x", "b"), job("y", "b"), tenants=tenants)
    assert "tenants of a higher priority precede it (0): b (3)" in text


def test_a_starved_job_names_greater_weights() -> None:
    heavy = [job(f"heavy{i}", "b", weight=1000.0) for i in range(2)]
    text = text_of(MINE, *heavy, job("heavy2", "b", weight=1000.0))
    assert "jobs of a greater weight than its 1: heavy0 of tenant b, weight 1e+03" in text


def test_a_starved_job_names_guarantees_and_limits_of_others() -> None:
    tenants = (Tenant("a"), Tenant("b", guarantee={"v100": 2}))
    text = text_of(MINE, job("x", "b"), job("y", "b"), tenants=tenants, policy="fifo")
    assert "2 of 2 v100 are guaranteed to b" in text
    inner = (Tenant("a", parent="team"), Tenant("c", parent="team"))
    nested = (Tenant("team", limit={"v100": 1}), *inner)
    text = text_of(job("first", "c", elapsed_s=9.0), MINE, tenants=nested, policy="fifo")
    assert "tenant team has reached its limit of v100" in text


@pytest.mark.parametrize("priority", [0, -1])
def test_a_job_with_its_share_names_no_cause(priority: int) -> None:
    text = text_of(MINE, job("x", "b", priority=priority))
    assert "priority" not in text
    assert "weight" not in text.replace("more weight", "")
