"""Every kind of bad input is one InputError with its place, problem and fix."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.files.refusal import Bytes, refused

from fairlead.files import (
    check_trace,
    read_cluster,
    read_instance,
    read_speeds,
    read_trace,
)
from fairlead.files.parsing.text import shorten
from fairlead.model.errors import InputError

HEAD = "job_id,arrival_s,workload,gang,total_steps\n"
GOOD = "a,0,w,1,10\n"
LINE = '{"job_id": "a", "arrival_s": 0, "workload": "w", "gang": 1, "total_steps": 5}\n'
SPEEDS = "workload,gang,accelerator,steps_per_s\n"


@pytest.mark.parametrize(
    ("data", "line", "field", "message"),
    [
        pytest.param("", None, None, "empty", id="empty file"),
        pytest.param("\n \r\n", None, None, "empty", id="blank file"),
        pytest.param(HEAD, None, None, "no rows", id="header only"),
        pytest.param("job_id,arrival_s\na,0\n", 1, "workload", "missing", id="missing column"),
        pytest.param(HEAD + "a,-1,w,1,10\n", 2, "arrival_s", "-1", id="negative time"),
        pytest.param(HEAD + "a,nan,w,1,10\n", 2, "arrival_s", "nan", id="NaN"),
        pytest.param(HEAD + "a,0,w,1,inf\n", 2, "total_steps", "inf", id="infinite"),
        pytest.param(HEAD + "a,0,w,1,1e999\n", 2, "total_steps", "1e999", id="overflow"),
        pytest.param(HEAD + "a,0,w,1,0\n", 2, "total_steps", "0", id="no steps"),
        pytest.param(HEAD + "a,0,w,1.5,10\n", 2, "gang", "1.5", id="gang 1.5"),
        pytest.param(HEAD + "a,0,w,0,10\n", 2, "gang", "0", id="gang 0"),
        pytest.param(HEAD + "a,0,w,9e9,10\n", 2, "gang", "9e9", id="absurd gang"),
        pytest.param(HEAD + "a,0,w,,10\n", 2, "gang", "missing", id="required cell empty"),
        pytest.param(HEAD + "a,0,,1,10\n", 2, "workload", "missing", id="no workload"),
        pytest.param(HEAD + "a,0,w,1\n", 2, None, "4 cells", id="ragged, short"),
        pytest.param(HEAD + "a,0,w,1,1,1\n", 2, None, "6 cells", id="ragged, long"),
        pytest.param(HEAD + GOOD + GOOD, 3, "job_id", "line 2", id="duplicate id"),
        pytest.param(HEAD + "a,0x10,w,1,10\n", 2, "arrival_s", "0x10", id="hexadecimal"),
        pytest.param(HEAD + "a,1_0,w,1,10\n", 2, "arrival_s", "1_0", id="underscore"),
        pytest.param(HEAD + "a,٣,w,1,10\n", 2, "arrival_s", "٣", id="other digits"),
        pytest.param(HEAD + "a,1.5D3,w,1,10\n", 2, "arrival_s", "1.5D3", id="Fortran double"),
        pytest.param(HEAD + "a,******,w,1,10\n", 2, "arrival_s", "***", id="Fortran overflow"),
        pytest.param(HEAD + 'a,"1,5",w,1,10\n', 2, "arrival_s", "1,5", id="decimal comma"),
        pytest.param(HEAD.replace(",", ";"), 1, None, "semicolons", id="semicolons"),
        pytest.param(HEAD.replace(",", "\t"), 1, None, "tabs", id="tabs"),
        pytest.param(HEAD.replace("gang", "gnag") + GOOD, 1, None, "gnag", id="misspelt column"),
        pytest.param(
            HEAD.strip() + ",gang\na,0,w,1,9,1\n", 1, None, "duplicate", id="column twice"
        ),
        pytest.param(HEAD + 'a,0,"w,1,10\n', 2, None, "unreadable", id="quote not closed"),
        pytest.param(HEAD + 'a,0,"w"x,1,10\n', 2, None, "unreadable", id="text after quote"),
        pytest.param(HEAD + "x" * 10**6, 2, None, "1,000,000 characters", id="10^6 characters"),
        pytest.param(HEAD + "," * 10**6, 2, None, "1,000,000 characters", id="10^6 commas"),
        pytest.param(HEAD + f"{'x' * 999},0,w,1,1\n", 2, "job_id", "999", id="very long name"),
        pytest.param(HEAD + "a\x07,0,w,1,1\n", 2, "job_id", "unprintable", id="control character"),
        pytest.param("\x00\x01" + HEAD, None, None, "binary", id="binary"),
        pytest.param(HEAD.encode("utf-16"), None, None, "UTF-16", id="UTF-16"),
        pytest.param(HEAD.encode() + b"\xe9,0,w,1,1\n", 2, None, "0xe9", id="Latin-1"),
        pytest.param(
            gzip.compress(HEAD.encode())[:-9], None, None, "truncated", id="truncated gzip"
        ),
        pytest.param(b"\x1f\x8b garbage", None, None, "damaged", id="damaged gzip"),
        pytest.param("\x1f\x8b".encode("latin-1"), None, None, "truncated", id="gzip magic only"),
        pytest.param("[1, 2]\n", 1, None, "not a JSON object", id="JSON list"),
        pytest.param(LINE + "7\n", 2, None, "not a JSON object", id="JSON number"),
        pytest.param(LINE + '{"job_id": \n', 2, None, "invalid JSON", id="JSON cut off"),
        pytest.param('{"job_id": 1, "job_id": 2}\n', 1, None, "duplicate", id="JSON key twice"),
        pytest.param(LINE.replace("5", "NaN"), 1, None, "NaN", id="JSON NaN"),
        pytest.param(LINE.replace("5", "1e999"), 1, "total_steps", "finite", id="JSON overflow"),
        pytest.param(LINE.replace("5", "9" * 9999), 1, None, "too long", id="JSON endless digits"),
        pytest.param(LINE.replace("5", "true"), 1, "total_steps", "True", id="JSON boolean"),
        pytest.param(LINE.replace("5", "[5]"), 1, "total_steps", "a list", id="JSON list inside"),
        pytest.param(LINE.replace("gang", "gnag"), 1, None, "gnag", id="JSON unknown field"),
        pytest.param(LINE.replace(', "gang": 1', ""), 1, "gang", "missing", id="JSON lacks one"),
        pytest.param("[" * 90_000, 1, None, "nested", id="JSON nested too deeply"),
    ],
)
def test_bad_trace_is_one_error(
    tmp_path: Path, data: Bytes, line: int | None, field: str | None, message: str
) -> None:
    error = refused(tmp_path, read_trace, data, ".csv")
    assert (error.line, error.field) == (line, field)
    assert message in error.problem


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("weight", "0"),
        ("weight", "inf"),
        ("weight", "-1"),
        ("weight", "heavy"),
        ("deadline_s", "-5"),
        ("deadline_s", "0"),
        ("utilization", "1.5"),
        ("memory_gib", "-2"),
        ("priority", "2.5"),
        ("min_gang", "3"),
        ("max_gang", "1"),
        ("accelerators", "v100;;k80"),
        ("accelerators", "v 100"),
        ("duration_s", "nan"),
        ("speeds", "v100"),
        ("speeds", "v100=0"),
    ],
)
def test_bad_optional_cell_names_its_column(tmp_path: Path, column: str, value: str) -> None:
    data = f"{HEAD.strip()},{column}\na,0,w,2,10,{value}\n"
    error = refused(tmp_path, read_trace, data, ".csv")
    assert (error.line, error.field) == (2, column)


@pytest.mark.parametrize(
    ("data", "line", "field", "message"),
    [
        pytest.param(SPEEDS, None, None, "no rows", id="header only"),
        pytest.param("workload,gang\nw,1\n", 1, "accelerator", "missing", id="missing column"),
        pytest.param(SPEEDS + "w,1,v100,-1\n", 2, "steps_per_s", "negative", id="negative"),
        pytest.param(SPEEDS + "w,1,v100,nan\n", 2, "steps_per_s", "nan", id="NaN"),
        pytest.param(SPEEDS + "w,0,v100,1\n", 2, "gang", "0", id="gang 0"),
        pytest.param(SPEEDS + "w,1,v=1,1\n", 2, "accelerator", "v=1", id="bad accelerator"),
        pytest.param(
            SPEEDS + "w,1,v,0\n", None, None, "all speeds are 0", id="speed 0 everywhere"
        ),
        pytest.param(SPEEDS + "w,1,v,1\nw,1,v,1\n", 3, None, "line 2", id="repeated"),
        pytest.param('{"v100": 3}', None, "v100", "not a JSON object", id="JSON number"),
        pytest.param("[]", None, None, "not a JSON object", id="JSON list"),
        pytest.param("{}", None, None, "all speeds are 0", id="JSON empty"),
        pytest.param('{"v100": {"w": {"null": -1}}}', None, "'v100'.'w'.null", "", id="JSON < 0"),
        pytest.param('{"v100": {"(w": {"null": 1}}}', None, None, "(w", id="bad key"),
        pytest.param('{"v100": {"(\'w\', 0)": {"null": 1}}}', None, None, "devices", id="gang 0 "),
        pytest.param('{"v": {"w": {"x": [1]}}}', None, "'v'.'w'.'x'", "pair", id="half a pair"),
        pytest.param('{"v": {"w": {"(\'x\', 2)": [1, 1]}}}', None, None, "share", id="gangs"),
    ],
)
def test_bad_speeds_are_one_error(
    tmp_path: Path, data: str, line: int | None, field: str | None, message: str
) -> None:
    error = refused(tmp_path, read_speeds, data, ".csv")
    assert error.line == line
    assert field is None or error.field == field
    assert message in error.problem


@pytest.mark.parametrize(
    ("rows", "field"),
    [
        ("w,1,v,,,1,2", "partner_steps_per_s"),
        ("w,1,v,,x,1,", "partner_steps_per_s"),
        ("w,1,v,packed,,1,", "placement"),
        ("w,1,v,,x,1,2\nx,1,v,,w,2,3", None),
    ],
)
def test_bad_pair_of_speeds_is_one_error(tmp_path: Path, rows: str, field: str | None) -> None:
    head = "workload,gang,accelerator,placement,partner,steps_per_s,partner_steps_per_s\n"
    error = refused(tmp_path, read_speeds, head + rows + "\n", ".csv")
    assert error.field == field
    assert error.line is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "neither"),
        ("nowhere", "neither"),
        ("v100", "neither"),
        ("v100=", "number"),
        ("v100=two", "two"),
        ("v100=-1", "negative"),
        ("v100=1.5", "1.5"),
        ("v100=4/0", "per node"),
        ("v100=0", "no devices"),
        ("v100=1,v100=2", "duplicate"),
        ("=3", "empty"),
        ("a b=3", "a b"),
        ("v100=9999999", "large"),
        ("v100=999999,k80=999999", "too many"),
        ("v100=nan", "finite"),
        ("\x00=1", "unprintable"),
    ],
)
def test_bad_cluster_text_is_one_error(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_cluster(text)
    assert caught.value.field == "cluster"
    assert message in str(caught.value)


NODE = "nodes:\n- id: a\n  devices: {v100: 1}\n"


@pytest.mark.parametrize(
    ("data", "line", "message"),
    [
        pytest.param("nodes: 3\n", 1, "not a list", id="nodes a number"),
        pytest.param("- 1\n", 1, "not a mapping", id="list on top"),
        pytest.param("accelerators: {}\n", 1, "nodes", id="no nodes"),
        pytest.param("nodes: []\n", None, "no devices", id="no devices"),
        pytest.param("nodes:\n- id: a\n", 2, "devices", id="node without devices"),
        pytest.param(NODE + "- id: a\n  devices: [k80]\n", 2, "duplicate", id="node twice"),
        pytest.param(NODE + "nodes: []\n", 4, "duplicate", id="key twice"),
        pytest.param(NODE + "  rak: b\n", 4, "rak", id="unknown field"),
        pytest.param(NODE + "  repeat: 0\n", 4, "repeat", id="repeat 0"),
        pytest.param(NODE + "  repeat: 99999999\n", 4, "large", id="absurd repeat"),
        pytest.param("nodes:\n- id: a\n  devices: {v: -1}\n", 3, "-1", id="negative count"),
        pytest.param("nodes:\n- id: a\n  devices: {v: x}\n", 3, "x", id="count not a number"),
        pytest.param(NODE + "accelerators:\n  v100: {memory_gib: no}\n", 5, "no", id="bad memory"),
        pytest.param(NODE + "accelerators: {v100: {usd_per_hour: -1}}\n", 4, "-1", id="price < 0"),
        pytest.param(NODE + "accelerators: {v10O: {}}\n", 4, "'v100'", id="details of nothing"),
        pytest.param("nodes: [\n", 2, "invalid YAML", id="not closed"),
        pytest.param("a: b: c\n", 1, "invalid YAML", id="not YAML"),
        pytest.param("nodes: &a [*a]\n", 1, "contains itself", id="a list inside itself"),
        pytest.param("[" * 5000, 1, "nested", id="nested too deeply"),
        pytest.param("", None, "empty", id="empty file"),
        pytest.param("# nothing\n", None, "empty", id="comment only"),
    ],
)
def test_bad_cluster_file_is_one_error(
    tmp_path: Path, data: str, line: int | None, message: str
) -> None:
    error = refused(tmp_path, read_cluster, data, ".yaml")
    assert error.line == line
    assert message in str(error)


def job(**changes: object) -> dict[str, object]:
    return {"id": "a", "speeds": {"v100": 1.0}, **changes}


def instance(*jobs: object, **more: object) -> str:
    return json.dumps({"cluster": {"v100": 2, "k80": 2}, "jobs": list(jobs), **more})


@pytest.mark.parametrize(
    ("data", "field", "message"),
    [
        pytest.param("[]", None, "not a JSON object", id="list"),
        pytest.param("{}", "cluster", "missing", id="no cluster"),
        pytest.param("{,}", None, "invalid JSON", id="not JSON"),
        pytest.param('{"cluster": {"v100": 1}, "cluster": {}}', None, "duplicate", id="key twice"),
        pytest.param('{"cluster": {}}', "cluster", "no devices", id="no devices"),
        pytest.param('{"cluster": {"v100": -1}}', "cluster.v100", "negative", id="count < 0"),
        pytest.param('{"cluster": {"v100": 1.5}}', "cluster.v100", "whole", id="count 1.5"),
        pytest.param(instance(job(), job()), "jobs[1].id", "twice", id="duplicate id"),
        pytest.param(instance(7), "jobs[0]", "not a JSON object", id="job a number"),
        pytest.param(instance({"id": "a"}), "jobs[0].speeds", "missing", id="no speeds"),
        pytest.param(instance(job(gang=1.5)), "jobs[0].gang", "1.5", id="gang 1.5"),
        pytest.param(instance(job(gang=3)), "jobs[0].gang", "3 devices", id="gang too large"),
        pytest.param(instance(job(weight=0)), "jobs[0].weight", "0", id="weight 0"),
        pytest.param(instance(job(wieght=1)), "jobs[0]", "wieght", id="unknown field"),
        pytest.param(instance(job(elapsed_s=-1)), "jobs[0].elapsed_s", "-1", id="negative time"),
        pytest.param(instance(job(steps_left=0)), "jobs[0].steps_left", "0", id="no steps left"),
        pytest.param(
            instance(job(speeds={"v100": -1})), "jobs[0].speeds.v100", "negative", id="speed < 0"
        ),
        pytest.param(
            instance(job(speeds={"v100": 0})), "jobs[0].speeds", "speed 0", id="speed 0 everywhere"
        ),
        pytest.param(
            instance(job(speeds={"h100": 5})), "jobs[0].speeds", "speed 0", id="only elsewhere"
        ),
        pytest.param(
            instance(job(), pairs=[{"jobs": ["a", "b"], "speeds": {}}]),
            "pairs[0]",
            "job 'b'",
            id="pair of an unknown job",
        ),
        pytest.param(
            instance(job(), pairs=[{"jobs": ["a", "a"], "speeds": {}}]),
            "pairs[0].jobs",
            "a",
            id="pair with itself",
        ),
        pytest.param(
            instance(job(), pairs=[{"jobs": ["a"], "speeds": {}}]),
            "pairs[0].jobs",
            "not a pair",
            id="pair of one",
        ),
        pytest.param(
            instance(tenants=[{"id": "x", "parent": "y"}, {"id": "y", "parent": "x"}]),
            "tenants.parent",
            "inside itself",
            id="parents in a circle",
        ),
        pytest.param(
            instance(tenants=[{"id": "x", "inner": "lottery"}]),
            "tenants[0].inner",
            "lottery",
            id="unknown inner policy",
        ),
        pytest.param(
            instance(tenants=[{"id": "x"}, {"id": "x"}]),
            "tenants[1].id",
            "twice",
            id="tenant twice",
        ),
        pytest.param(
            instance(usd_per_hour={"v100": -1}), "usd_per_hour.v100", "negative", id="price < 0"
        ),
    ],
)
def test_bad_instance_is_one_error(
    tmp_path: Path, data: str, field: str | None, message: str
) -> None:
    error = refused(tmp_path, read_instance, data, ".json")
    assert error.field == field
    assert message in error.problem


@pytest.mark.parametrize("read", [read_trace, read_speeds, read_instance, read_cluster])
def test_an_unreadable_path_is_one_error(tmp_path: Path, read: Callable[[Path], object]) -> None:
    for path in (tmp_path, tmp_path / "missing.csv", Path("a\0b"), tmp_path / ("x" * 5000)):
        with pytest.raises(InputError) as caught:
            read(path)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 300


def test_an_unknown_speed_table_hints_at_the_bundled_ones() -> None:
    with pytest.raises(InputError, match="gandiva-fair"):
        read_speeds("gandiva")


@pytest.mark.parametrize(
    ("row", "cluster", "field", "message"),
    [
        ("b,0,ResNet-5,1,10", "v100=2", "workload", "did you mean 'ResNet-50'"),
        ("b,0,ResNet-50,8,10", "v100=2,k80=4", "gang", "needs 8 devices"),
        ("b,1e300,GRU,1,10", "v100=1", "arrival_s", "300 years"),
        ("b,0,GRU,1,1e14", "v100=1", "total_steps", "300 years"),
    ],
)
def test_a_job_that_cannot_run_is_named_with_its_line(
    tmp_path: Path, row: str, cluster: str, field: str, message: str
) -> None:
    path = tmp_path / "trace.csv"
    # The faulty job is last in the file and arrives first: the error names its line in the file.
    path.write_text(f"{HEAD}a,5,ResNet-50,1,10\n{row}\n")
    with pytest.raises(InputError) as caught:
        check_trace(read_trace(path), read_speeds("gandiva-fair"), read_cluster(cluster))
    assert (caught.value.source, caught.value.line) == (shorten(str(path)), 3)
    assert caught.value.field == field
    assert message in str(caught.value)


def test_a_job_without_a_usable_accelerator_cannot_run(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(f"{HEAD.strip()},accelerators\na,0,GRU,1,10,h100\n")
    with pytest.raises(InputError, match="may use no accelerator"):
        check_trace(read_trace(path), read_speeds("gandiva-fair"), read_cluster("v100=1"))


def test_a_gang_without_speeds_cannot_run(tmp_path: Path) -> None:
    speeds = tmp_path / "speeds.csv"
    speeds.write_text(SPEEDS + "w,1,v,1\nw,2,v,2\n")
    trace = tmp_path / "trace.csv"
    trace.write_text(HEAD + "a,0,w,4,10\n")
    with pytest.raises(InputError, match="no gang of 4") as caught:
        check_trace(read_trace(trace), read_speeds(speeds), read_cluster("v=8"))
    assert caught.value.line == 2
