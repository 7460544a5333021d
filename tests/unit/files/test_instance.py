"""Instances as JSON."""

import json
from pathlib import Path

import pytest
from tests.support.shared_data import needs_shared, shared

from fairlead.files import read_instance, write_instance
from fairlead.model.errors import InputError
from fairlead.model.instance import Instance, InstanceJob, Pair
from fairlead.model.tenants.tenant import Tenant

SMALL = {"cluster": {"v100": 2}, "jobs": [{"id": "a", "speeds": {"v100": 8.6, "h100": 9}}]}
FULL = {
    "cluster": {"v100": 2, "k80": 4, "mine": 1},
    "jobs": [
        {
            "id": "a",
            "workload": "LM",
            "tenant": "x",
            "gang": 2,
            "weight": 2,
            "steps_left": 100,
            "elapsed_s": 5.5,
            "isolated_elapsed_s": 4.5,
            "deadline_s": 60,
            "speeds": {"v100": 8.6, "k80": 0},
        },
        {"id": "b", "tenant": "new", "gang": 2, "speeds": {"k80": 1}, "steps_left": None},
    ],
    "tenants": [{"id": "x", "weight": 3, "parent": "all", "inner": "fifo"}],
    "pairs": [{"jobs": ["a", "b"], "speeds": {"k80": [5.1, 3.2]}}],
    "usd_per_hour": {"v100": 0.5, "mine": 2},
}


def read(tmp_path: Path, document: object) -> Instance:
    path = tmp_path / "instance.json"
    path.write_text(json.dumps(document))
    return read_instance(path)


def test_everything_but_cluster_id_and_speeds_has_a_default(tmp_path: Path) -> None:
    instance = read(tmp_path, SMALL)
    assert instance.jobs == (InstanceJob(id="a", speeds={"v100": 8.6, "h100": 9.0}),)
    assert instance.tenants == (Tenant("default"),)
    assert instance.pairs == ()
    assert instance.cluster.usd_per_hour.tolist() == [0.74]
    assert read(tmp_path, {"cluster": {"v100": 1}}).jobs == ()


def test_every_member_is_read(tmp_path: Path) -> None:
    instance = read(tmp_path, FULL)
    assert instance.jobs[0] == InstanceJob(
        id="a",
        workload="LM",
        tenant="x",
        gang=2,
        weight=2.0,
        steps_left=100.0,
        elapsed_s=5.5,
        isolated_elapsed_s=4.5,
        deadline_s=60.0,
        speeds={"v100": 8.6, "k80": 0.0},
    )
    assert instance.pairs == (Pair(("a", "b"), {"k80": (5.1, 3.2)}),)
    assert instance.cluster.usd_per_hour.tolist() == [0.5, 0.135, 2.0]


def test_tenants_referred_to_but_not_listed_have_defaults(tmp_path: Path) -> None:
    assert read(tmp_path, FULL).tenants == (
        Tenant("x", 3.0, "all", "fifo"),
        Tenant("all"),
        Tenant("new"),
    )


@pytest.mark.parametrize("document", [SMALL, FULL])
def test_written_instances_read_back_the_same(tmp_path: Path, document: object) -> None:
    instance = read(tmp_path, document)
    write_instance(instance, tmp_path / "again.json.gz")
    assert read_instance(tmp_path / "again.json.gz") == instance


def test_a_deep_line_of_parents_is_not_a_cycle(tmp_path: Path) -> None:
    line = [{"id": str(i), "parent": str(i + 1)} for i in range(5000)]
    assert len(read(tmp_path, {**SMALL, "tenants": line}).tenants) == 5002


def test_a_duplicate_pair_is_refused_in_either_order(tmp_path: Path) -> None:
    jobs = [{"id": i, "speeds": {"v100": 1}} for i in "ab"]
    pairs = [{"jobs": list(p), "speeds": {}} for p in ("ab", "ba")]
    with pytest.raises(InputError, match=r"twice|duplicate"):
        read(tmp_path, {**SMALL, "jobs": jobs, "pairs": pairs})


@needs_shared
def test_reference_instances_are_readable(tmp_path: Path) -> None:
    for reference in json.loads(shared("reference/gavel/allocations.json").read_text()):
        kept = ("id", "workload", "gang", "weight", "steps_left", "elapsed_s")
        jobs = [{k: j[k] for k in kept} | {"speeds": j["throughputs"]} for j in reference["jobs"]]
        instance = read(tmp_path, {"cluster": reference["cluster"], "jobs": jobs})
        assert [job.id for job in instance.jobs] == [job["id"] for job in reference["jobs"]]
        assert instance.cluster.count_by_name() == reference["cluster"]
