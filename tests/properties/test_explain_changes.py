"""A change that is named does what was said: applied to the file by hand, solved again."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlead.files import read_instance
from fairlead.insight.explain.explain import explain
from fairlead.model.snapshot import snapshot_of
from fairlead.policies.base import effective_speed
from fairlead.policies.rules.priority import policy_named

POLICIES = ("max-min", "max-min", "oef", "tenant-max-min", "makespan", "isolated", "hierarchical")


def instance(rng: np.random.Generator) -> dict[str, Any]:
    kinds = ["v100", "p100", "k80"][: int(rng.integers(2, 4))]
    jobs = []
    for i in range(int(rng.integers(2, 8))):
        speeds = {kind: round(float(rng.uniform(0.5, 8)), 3) for kind in kinds}
        if rng.random() < 0.3:
            del speeds[kinds[int(rng.integers(len(kinds)))]]
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
        "cluster": {kind: int(rng.integers(4, 7)) for kind in kinds},
        "jobs": jobs,
        "tenants": [{"id": team, "weight": float(rng.choice([1.0, 3.0]))} for team in teams],
    }


def edited(document: dict[str, Any], edit: dict[str, Any]) -> dict[str, Any]:
    """Return the document with the members set that an explanation names."""
    after: dict[str, Any] = json.loads(json.dumps(document))
    after["cluster"].update(edit.get("cluster", {}))
    for group in ("jobs", "tenants"):
        for name, members in edit.get(group, {}).items():
            found = next(item for item in after[group] if item["id"] == name)
            speeds = {**found.get("speeds", {}), **members.get("speeds", {})}
            found.update(members)
            if speeds:
                found["speeds"] = {kind: speed for kind, speed in speeds.items() if speed}
    return after


def speeds(document: dict[str, Any], policy: str, path: Path) -> dict[str, float]:
    """Return job or tenant → speed, as a user of the file would find it."""
    path.write_text(json.dumps(document))
    snap = snapshot_of(read_instance(path))
    allocation = policy_named(policy).allocate(snap)
    of_tenants = allocation.rows == "tenants"
    names = [tenant.id for tenant in snap.tenants] if of_tenants else list(snap.ids)
    return dict(zip(names, effective_speed(snap, allocation).tolist(), strict=True))


def test_predicted_gains_come_true_on_100_random_cases(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    cases, kinds = 0, set()
    while cases < 100:
        document = instance(rng)
        policy = POLICIES[int(rng.integers(len(POLICIES)))]
        path = tmp_path / "instance.json"
        before = speeds(document, policy, path)
        who = f"job-{int(rng.integers(len(document['jobs'])))}"
        snap = snapshot_of(read_instance(path))
        found = explain(snap, policy_named(policy), who, name=policy)
        told = found.as_dict()
        if told["cheapest"] is None:
            continue
        cases += 1
        for change in told["changes"]:
            kinds.add(change["kind"])
            after = speeds(edited(document, change["edit"]), policy, path)
            gain = after[told["who"]] / before[told["who"]] - 1
            assert change["gain"] == pytest.approx(gain, rel=0.01, abs=1e-7)
            assert change["speed"] == pytest.approx(after[told["who"]], rel=1e-6)
    assert kinds == {"accelerator", "gang", "weight", "device"}


def test_a_tenants_predicted_gain_is_that_of_its_jobs_together(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    cases = 0
    path = tmp_path / "instance.json"
    while cases < 20:
        document = instance(rng)
        before = speeds(document, "max-min", path)
        who = document["jobs"][0]["tenant"]
        told = explain(snapshot_of(read_instance(path)), policy_named("max-min"), who).as_dict()
        if told["cheapest"] is None:
            continue
        cases += 1
        cluster = document["cluster"]
        unit = {
            job["id"]: job["gang"]
            * sum(cluster.values())
            / sum(cluster[kind] * speed for kind, speed in job["speeds"].items())
            for job in document["jobs"]
            if job["tenant"] == who
        }
        for change in told["changes"]:
            after = speeds(edited(document, change["edit"]), "max-min", path)
            was = sum(before[job] * scale for job, scale in unit.items())
            now = sum(after[job] * scale for job, scale in unit.items())
            assert told["speed"] == pytest.approx(was)
            assert change["gain"] == pytest.approx(now / was - 1, rel=0.01, abs=1e-7)
