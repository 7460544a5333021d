"""Jobs that can never run are errors, or are skipped with their reasons."""

import json

import pytest

from fairlead.files import read_cluster, read_speeds, skip_impossible
from fairlead.files.instance import parse_possible_jobs
from fairlead.files.parsing.text import SourceText
from fairlead.files.traces.trace import parse_trace
from fairlead.model.errors import InputError

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
