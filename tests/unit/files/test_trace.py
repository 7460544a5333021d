"""Traces as CSV and JSONL."""

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.shared_data import needs_shared, shared

from fairlead.files import Trace, check_trace, format_trace, read_cluster, read_speeds, read_trace
from fairlead.files.traces.trace import COLUMNS, write_trace
from fairlead.model.errors import InputError
from fairlead.model.job import Job
from fairlead.testing.cpu_time import cpu_s

FULL = Job(
    id="a b",
    workload="LM, large",
    total_steps=1.5,
    gang=2,
    arrival_at=0.1,
    tenant="t",
    weight=2.5,
    priority=-3,
    deadline_s=7.0,
    min_gang=1,
    max_gang=4,
    accelerators=("v100", "k80"),
    memory_gib=10.0,
    utilization=0.5,
    multijob="search",
    duration_s=1e-9,
    declared_speeds={"v100": 3.2, "k80": 1.0},
)
PLAIN = Job(id="0", workload="GAN", total_steps=10.0)


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.csv.gz", "t.jsonl.gz"])
def test_written_traces_read_back_the_same(tmp_path: Path, name: str) -> None:
    write_trace([FULL, PLAIN], tmp_path / name)
    assert read_trace(tmp_path / name).jobs == (PLAIN, FULL)


def test_the_same_jobs_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.csv.gz", "b.csv.gz"):
        write_trace([FULL], tmp_path / name)
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()


def test_every_field_of_a_job_has_its_column() -> None:
    named = {c: c for c in COLUMNS} | {"job_id": "id", "arrival_s": "arrival_at"}
    named["speeds"] = "declared_speeds"
    # Devices per accelerator are in the column of accelerators: v100;k80=2.
    # Only a server tells numbers that an admin chose from others, and has jobs without a length.
    outside = {"gangs", "across_tenants", "open_ended"}
    assert {*named.values(), *outside} == set(Job.__dataclass_fields__)


def test_only_used_columns_are_written() -> None:
    assert format_trace([PLAIN]).splitlines()[0] == "job_id,arrival_s,workload,gang,total_steps"


def test_jobs_are_sorted_by_arrival_and_keep_the_files_order_and_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "# made by hand\njob_id,arrival_s,workload,gang,total_steps\n"
        "late,5,w,1,1\n\nearly,0,w,1,1\ntoo,5.0,w,1,1\n"
    )
    trace = read_trace(path)
    assert [job.id for job in trace] == ["early", "late", "too"]
    assert trace.lines == (5, 3, 6)


def test_bom_crlf_spaces_and_column_order_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(
        b"\xef\xbb\xbftotal_steps, gang ,workload,arrival_s,job_id,tenant\r\n"
        b' +1e1 ,2.0," GAN ",.5,7, \r\n'
    )
    assert read_trace(path).jobs == (
        Job(id="7", workload="GAN", total_steps=10, gang=2, arrival_at=0.5),
    )


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_numbers_do_not_depend_on_line_ends(tmp_path: Path, end: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(format_trace([PLAIN, FULL]).replace("\n", end).encode())
    trace = read_trace(path)
    assert (trace.jobs, trace.lines) == ((PLAIN, FULL), (2, 3))


def test_gzip_is_detected_by_content_not_by_name(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(gzip.compress(format_trace([PLAIN]).encode()))
    assert read_trace(path).jobs == (PLAIN,)


def test_json_null_is_the_default_and_numbers_may_be_ids(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(
        '\n{"job_id": 0, "arrival_s": 0, "workload": "GAN", "gang": 1, "total_steps": 10,'
        ' "weight": null, "accelerators": null}\n'
    )
    assert read_trace(path).jobs == (PLAIN,)


def test_a_trace_is_a_sequence_of_its_jobs() -> None:
    trace = Trace((PLAIN, FULL))
    assert len(trace) == 2
    assert trace[1] is FULL
    assert trace[:1] == (PLAIN,)
    assert list(trace) == [PLAIN, FULL]


def test_an_elastic_job_needs_devices_for_its_whole_gang() -> None:
    job = Job(id="a", workload="GRU", total_steps=1, gang=8, min_gang=2)
    check_trace([job], read_speeds("gandiva-fair"), read_cluster("v100=8"))
    with pytest.raises(InputError, match="needs 8 devices of one accelerator"):
        check_trace([job], read_speeds("gandiva-fair"), read_cluster("v100=2"))


def test_fifty_thousand_rows_read_in_time(tmp_path: Path) -> None:
    rare: dict[str, Any] = {"multijob": None, "accelerators": None, "declared_speeds": {}}
    base = replace(FULL, workload="ResNet-50 (batch size 64)", **rare)
    jobs = [replace(base, id=f"job-{i}", arrival_at=i * 1.37) for i in range(50_000)]
    path = tmp_path / "t.csv"
    write_trace(jobs, path)
    trace, took_s = cpu_s(lambda: read_trace(path), tries=2)
    assert trace.jobs == tuple(jobs)
    assert took_s < 2.5


@needs_shared
@pytest.mark.parametrize(
    ("name", "n_jobs"),
    [("static_single_100_seed0.csv.gz", 100), ("cont_single_300_lam1800_seed0.csv.gz", 300)],
)
def test_reference_traces_are_readable_and_can_run(name: str, n_jobs: int) -> None:
    trace = read_trace(shared(f"reference/gavel/{name}"))
    speeds = read_speeds(shared("data/gavel/simulation_throughputs.json.gz"))
    check_trace(trace, speeds, read_cluster("v100=4,p100=4,k80=4"))
    assert len(trace) == n_jobs
    assert trace[0].workload == "ResNet-18 (batch size 64)"
    assert trace[0].total_steps == 1646636
