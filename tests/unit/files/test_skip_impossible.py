"""Jobs that can never run are errors, or are skipped with their reasons."""

import json
from dataclasses import replace
from typing import Any

import pytest

from fairlead.files import check_trace, read_cluster, read_speeds, skip_impossible
from fairlead.files.instance import parse_possible_jobs
from fairlead.files.parsing.text import SourceText
from fairlead.files.traces.trace import parse_trace
from fairlead.model.capabilities import Capabilities
from fairlead.model.errors import ImpossibleJobError, InputError
from fairlead.model.job import Job
from fairlead.model.tenants.tenant import Tenant

HEAD = "job_id,arrival_s,workload,gang,total_steps,memory_gib\n"
TRACE = (
    "fits,0,ResNet-50,2,100,\n"
    "large,1,ResNet-50,64,100,\n"
    "unknown,2,Nonsense,1,100,\n"
    "memory,3,LSTM,1,100,500\n"
    "endless,4,LSTM,1,1e15,\n"
    "last,5,LSTM,1,100,\n"
)
SPEEDS, CLUSTER = read_speeds("gandiva-fair"), read_cluster("v100=4,k80=8")


def test_impossible_jobs_of_a_trace_are_skipped_and_named() -> None:
    trace = parse_trace(SourceText("t.csv", HEAD + TRACE))
    left, skipped = skip_impossible(trace, SPEEDS, CLUSTER)
    assert [job.id for job in left] == ["fits", "last"]
    assert left.lines == (2, 7)
    assert [job.id for job in skipped] == ["large", "unknown", "memory", "endless"]
    for job, reason in zip(
        skipped, ("64 devices", "unknown workload", "500 GiB", "300 years"), strict=True
    ):
        assert job.id in job.reason
        assert reason in job.reason


def test_a_trace_without_runnable_jobs_and_a_duplicate_stay_errors() -> None:
    none = parse_trace(SourceText("t.csv", f"{HEAD}a,0,Nonsense,1,100,\nb,0,Nonsense,1,9,\n"))
    with pytest.raises(InputError, match=r"t\.csv: none of the 2 jobs can run; first"):
        skip_impossible(none, SPEEDS, CLUSTER)
    twice = [*parse_trace(SourceText("t.csv", f"{HEAD}a,0,LSTM,1,100,\n"))] * 2
    with pytest.raises(InputError, match="listed twice"):
        skip_impossible(twice, SPEEDS, CLUSTER)


def job(gang: int, **fields: Any) -> Job:
    return Job(id="a", workload="ResNet-50", gang=gang, total_steps=100.0, tenant="lab", **fields)


@pytest.mark.parametrize(
    ("limited", "limit", "message"),
    [
        (job(1), {"v100": 0, "k80": 0}, "needs 1 device at once, tenant 'lab' may hold 0 v100, 0"),
        (job(2), {"v100": 1, "k80": 0.5}, "needs 2 devices at once, tenant 'lab' may hold 1 v100"),
        (job(2, accelerators=("v100",)), {"v100": 0}, "may hold 0 v100"),
        (job(8), {"k80": 4}, "needs 8 devices at once, tenant 'lab' may hold 4 k80"),
        (job(4, min_gang=2), {"v100": 1, "k80": 1}, "needs 2 devices at once"),
    ],
)
def test_gang_above_its_tenants_limits_is_impossible(
    limited: Job, limit: dict[str, float], message: str
) -> None:
    """The limit may be that of a tenant around the job's own."""
    for tenants in (
        [Tenant("lab", limit=limit)],
        [Tenant("lab", parent="site"), Tenant("site", limit=limit)],
    ):
        with pytest.raises(ImpossibleJobError, match=message) as caught:
            check_trace([limited], SPEEDS, CLUSTER, tenants=tenants)
        assert caught.value.field == "tenant"
        other = replace(limited, id="b", tenant="else")
        left, skipped = skip_impossible([limited, other], SPEEDS, CLUSTER, tenants=tenants)
        assert [job.id for job in left] == ["b"]
        assert [job.id for job in skipped] == ["a"]


@pytest.mark.parametrize(
    ("limited", "capabilities"),
    [
        (job(2, min_gang=1), Capabilities()),
        (job(2), Capabilities(packs=True)),
        (job(2), Capabilities(mixed_gangs=True)),
        (job(1, accelerators=("v100",)), Capabilities()),
    ],
)
def test_gang_that_shrinks_shares_or_mixes_devices_may_exceed_a_limit(
    limited: Job, capabilities: Capabilities
) -> None:
    tenants = [Tenant("lab", limit={"v100": 0.5, "k80": 1})]
    check_trace([limited], SPEEDS, CLUSTER, capabilities, tenants)


def test_impossible_jobs_of_an_instance_are_skipped_with_their_pairs() -> None:
    jobs = [
        {"id": "a", "speeds": {"v100": 1.0}},
        {"id": "large", "gang": 4, "speeds": {"v100": 1.0}},
        {"id": "nowhere", "speeds": {"k80": 1.0}},
    ]
    pairs = [{"jobs": ["a", "nowhere"], "speeds": {"v100": [0.5, 0.5]}}]
    document = {"cluster": {"v100": 1}, "jobs": jobs, "pairs": pairs}
    instance, skipped = parse_possible_jobs(SourceText("i.json", json.dumps(document)))
    assert [job.id for job in instance.jobs] == ["a"]
    assert instance.pairs == ()
    assert [(job.id, job.reason.partition(" has ")[0]) for job in skipped] == [
        ("large", "job 'large' needs 4 devices of one accelerator, the cluster"),
        ("nowhere", "job 'nowhere'"),
    ]
