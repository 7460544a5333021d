"""Predicted gains of changes equal those of edited instance files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlead.files import read_instance
from fairlead.insight.explain.explain import explain
from fairlead.model.snapshot import snapshot_of
from fairlead.policies.base import effective_speed
from fairlead.policies.rules.priority import create_policy

POLICIES = ("max-min", "max-min", "oef", "tenant-max-min", "makespan", "isolated", "hierarchical")


def instance(rng: np.random.Generator) -> dict[str, Any]:
    accelerators = ["v100", "p100", "k80"][: int(rng.integers(2, 4))]
    jobs = []
    for i in range(int(rng.integers(2, 8))):
        speeds = {name: round(float(rng.uniform(0.5, 8)), 3) for name in accelerators}
        if rng.random() < 0.3:
            del speeds[accelerators[int(rng.integers(len(accelerators)))]]
        gang = int(rng.choice([1, 1, 1, 2, 4]))
        jobs.append(
            {
                "id": f"job-{i}",
                "tenant": f"team-{int(rng.integers(3))}",
                "workload": f"w{int(rng.integers(4))}",
                "gang": gang,
                "weight": float(rng.choice([1.0, 2.0])),
                "steps_left": float(rng.uniform(100, 1000)),
                "speeds": speeds,
            }
        )
    teams = sorted({str(job["tenant"]) for job in jobs})
    return {
        "cluster": {name: int(rng.integers(4, 7)) for name in accelerators},
        "jobs": jobs,
        "tenants": [{"id": team, "weight": float(rng.choice([1.0, 3.0]))} for team in teams],
    }


def edited(document: dict[str, Any], edit: dict[str, Any]) -> dict[str, Any]:
    """Return the document with an explanation's edit applied."""
    after: dict[str, Any] = json.loads(json.dumps(document))
    after["cluster"].update(edit.get("cluster", {}))
    for group in ("jobs", "tenants"):
        for name, members in edit.get(group, {}).items():
            entry = next(item for item in after[group] if item["id"] == name)
            speeds = {**entry.get("speeds", {}), **members.get("speeds", {})}
            entry.update(members)
            if speeds:
                entry["speeds"] = {a: speed for a, speed in speeds.items() if speed}
    return after


def speeds(document: dict[str, Any], policy: str, path: Path) -> dict[str, float]:
    """Return job or tenant → speed, read from the written file."""
    path.write_text(json.dumps(document))
    snap = snapshot_of(read_instance(path))
    allocation = create_policy(policy).allocate(snap)
    of_tenants = allocation.rows == "tenants"
    names = [tenant.id for tenant in snap.tenants] if of_tenants else list(snap.ids)
    return dict(zip(names, effective_speed(snap, allocation).tolist(), strict=True))


def test_predicted_gains_are_exact_on_100_random_cases(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    cases, tried = 0, set()
    while cases < 100:
        document = instance(rng)
        policy = POLICIES[int(rng.integers(len(POLICIES)))]
        path = tmp_path / "instance.json"
        before = speeds(document, policy, path)
        subject = f"job-{int(rng.integers(len(document['jobs'])))}"
        snap = snapshot_of(read_instance(path))
        explanation = explain(snap, create_policy(policy), subject, name=policy).as_dict()
        if explanation["cheapest"] is None:
            continue
        cases += 1
        for change in explanation["changes"]:
            tried.add(change["kind"])
            after = speeds(edited(document, change["edit"]), policy, path)
            gain = after[explanation["who"]] / before[explanation["who"]] - 1
            assert change["gain"] == pytest.approx(gain, rel=0.01, abs=1e-7)
            assert change["speed"] == pytest.approx(after[explanation["who"]], rel=1e-6)
    assert tried == {"accelerator", "gang", "weight", "device"}


def test_predicted_gain_of_a_tenant_is_the_sum_over_its_jobs(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    cases = 0
    path = tmp_path / "instance.json"
    while cases < 20:
        document = instance(rng)
        before = speeds(document, "max-min", path)
        tenant = document["jobs"][0]["tenant"]
        snap = snapshot_of(read_instance(path))
        explanation = explain(snap, create_policy("max-min"), tenant).as_dict()
        if explanation["cheapest"] is None:
            continue
        cases += 1
        cluster = document["cluster"]
        unit = {
            job["id"]: job["gang"]
            * sum(cluster.values())
            / sum(cluster[name] * speed for name, speed in job["speeds"].items())
            for job in document["jobs"]
            if job["tenant"] == tenant
        }
        for change in explanation["changes"]:
            after = speeds(edited(document, change["edit"]), "max-min", path)
            was = sum(before[job] * scale for job, scale in unit.items())
            now = sum(after[job] * scale for job, scale in unit.items())
            assert explanation["speed"] == pytest.approx(was)
            assert change["gain"] == pytest.approx(now / was - 1, rel=0.01, abs=1e-7)
