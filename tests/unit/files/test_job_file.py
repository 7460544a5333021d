"""Job files and sweeps."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from fairlead.cli.client.sweep import expand
from fairlead.files.job_file import FIELDS, JobFile, parse_array, parse_arrays, parse_job_file
from fairlead.files.parsing.text import Text
from fairlead.live.job_spec import JobSpec
from fairlead.model.errors import InputError
from fairlead.server.api.schemas import NewJob

GUIDE = Path(__file__).parents[3] / "docs/guide/serve.md"
FULL = """
name: resnet-{lr}
command: [python, train.py, --lr, "{lr}"]
tenant: vision
workload: ResNet-50
gang: 2
min_gang: 1
max_gang: 4
multijob: search
steps: 5000
weight: 2
priority: -1
deadline_s: 3600
accelerators: v100, p100
memory_gib: 16
directory: runs
environment: {OMP_NUM_THREADS: 1}
retries: 2
grace_s: 10
host_memory_gib: 64
time_limit_s: 7200
progress_pattern: 'step (\\d+)'
array: {lr: [0.1, 0.01], seed: 0-2}
"""


def read(body: str) -> JobFile:
    return parse_job_file(Text("job.yaml", body))


def test_a_file_can_say_all_that_the_server_takes() -> None:
    found = read(FULL)
    assert set(found.values) == set(FIELDS) - {"array"} == set(NewJob.model_fields)
    job = NewJob(**found.values)
    assert (job.gang, job.priority, job.weight, job.steps) == (2, -1, 2.0, 5000)
    assert job.accelerators == ["v100", "p100"]
    assert job.environment == {"OMP_NUM_THREADS": "1"}
    assert found.array == {"lr": ("0.1", "0.01"), "seed": ("0", "1", "2")}
    assert set(NewJob.model_fields) == {f.name for f in fields(JobSpec)} - {"id"}


def test_the_guides_job_file_makes_the_jobs_it_says() -> None:
    (shown,) = re.findall(r"```yaml\n(# job.yaml.*?)```", GUIDE.read_text(), re.DOTALL)
    found = read(shown)
    jobs = [NewJob(**job) for job in expand(found.values, found.array)]
    assert len(jobs) == 10
    assert jobs[1].command == ["python", "train.py", "--lr", "0.1", "--seed", "1"]
    assert jobs[9].name == "resnet-0.01"


def test_a_command_is_split_as_a_shell_would() -> None:
    assert read("command: python -c 'print(1)'").values["command"] == ["python", "-c", "print(1)"]


@pytest.mark.parametrize(
    ("body", "line", "field", "said"),
    [
        ("command: x\ngnag: 2", 2, "gnag", "did you mean 'gang'?"),
        ("command: x\n\ngang: two", 3, "gang", "not a number"),
        ("command: x\ngang: 1.5", 2, "gang", "not whole"),
        ("command: 'x", 1, None, "not YAML"),
        ('command: "it\'s"', 1, "command", "cannot be split"),
        ("command: []", 1, "command", "empty"),
        ("- x", 1, None, "not a mapping"),
        ("command: x\ncommand: y", 2, None, "given twice"),
        ("command: x\nenvironment: [A]", 2, "environment", "not a mapping"),
        ("command: x\narray: {1x: [1]}", 2, "array", "no variable's name"),
        ("command: x\narray: 9-0", 2, "array", "no range"),
        ("command: x\narray: {lr: []}", 2, "array", "'lr': it has no values; give a list"),
        ("command: x\narray: {lr: [1, '']}", 2, "array", "'lr': a value is empty; give a list"),
        ("command: x\nname: [a]", 2, "name", "plain text"),
    ],
)
def test_what_is_wrong_names_the_line(body: str, line: int, field: str | None, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read(body)
    assert (caught.value.line, caught.value.field) == (line, field)
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"job.yaml:{line}")


@pytest.mark.parametrize(
    ("given", "label", "values"),
    [
        ("0-3", "index", ("0", "1", "2", "3")),
        ("0-20:10", "index", ("0", "10", "20")),
        ("1,5-6", "index", ("1", "5", "6")),
        ("lr=0.1,1e-3", "lr", ("0.1", "1e-3")),
        ("model=resnet-50,vit", "model", ("resnet-50", "vit")),
    ],
)
def test_arrays(given: str, label: str, values: tuple[str, ...]) -> None:
    assert parse_array(given) == (label, values)


@pytest.mark.parametrize(
    ("given", "label"),
    [(["0-1", "0-2"], "index"), (["lr=0.1", "lr=0.2"], "lr"), (["index=1", "0-2"], "index")],
)
def test_a_variable_is_given_once(given: list[str], label: str) -> None:
    with pytest.raises(InputError, match=f"array: '{label}' is given twice: give one"):
        parse_arrays(given)
    assert parse_arrays(["0-1", "lr=0.1,0.2"]) == {"index": ("0", "1"), "lr": ("0.1", "0.2")}


def test_a_sweep_fills_in_its_variables_and_leaves_other_braces() -> None:
    values = {"command": ["sh", "-c", "echo ${HOME} {lr} {index}"], "environment": {"LR": "{lr}"}}
    jobs = expand(values, {"lr": ("0.1", "0.01")})
    assert [job["command"][2] for job in jobs] == [
        "echo ${HOME} 0.1 0", "echo ${HOME} 0.01 1"
    ]  # fmt: skip
    assert jobs[1]["environment"] == {"LR": "0.01", "FAIRLEAD_ARRAY_INDEX": "1"}


def test_a_variable_that_stands_nowhere_is_refused() -> None:
    with pytest.raises(InputError, match=r"\{lr\} stands nowhere"):
        expand({"command": ["train"]}, {"lr": ("1", "2")})
    assert len(expand({"command": ["train"]}, {"index": ("1", "2")})) == 2


def test_too_many_jobs_are_refused() -> None:
    many = tuple(map(str, range(1000)))
    with pytest.raises(InputError, match="1,000,000 jobs are too many"):
        expand({"command": ["{a}{b}"]}, {"a": many, "b": many})
