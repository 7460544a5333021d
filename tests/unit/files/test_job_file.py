"""Job files and sweeps."""

import re
from pathlib import Path

import pytest

from fairlead.cli.client.sweep import expand
from fairlead.files.job_file import FIELDS, JobFile, parse_array, parse_arrays, parse_job_file
from fairlead.files.parsing.text import SourceText
from fairlead.model.errors import InputError
from fairlead.model.submission.new_job import NewJob

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
speeds: {v100: 3.2, k80: 1}
retries: 2
grace_s: 10
host_memory_gib: 64
time_limit_s: 7200
after: j1, prepare
after_any: [j2]
snapshot: yes
container: pytorch/pytorch:2.5.1
progress_pattern: 'step (\\d+)'
array: {lr: [0.1, 0.01], seed: 0-2}
"""


def read(body: str) -> JobFile:
    return parse_job_file(SourceText("job.yaml", body))


def test_a_file_sets_every_field_of_a_job_and_its_sweep() -> None:
    job_file = read(FULL)
    job = NewJob(**job_file.values)
    assert (job.gang, job.priority, job.weight, job.steps) == (2, -1, 2.0, 5000)
    assert job.accelerators == ("v100", "p100")
    assert job.environment == {"OMP_NUM_THREADS": "1"}
    assert job.speeds == {"v100": 3.2, "k80": 1.0}
    assert job_file.array == {"lr": ("0.1", "0.01"), "seed": ("0", "1", "2")}
    assert (job.after, job.after_any, job_file.snapshot) == (("j1", "prepare"), ("j2",), True)


def test_the_job_file_of_the_guide_makes_its_ten_jobs() -> None:
    (shown,) = re.findall(r"```yaml\n(# job.yaml.*?)```", GUIDE.read_text(), re.DOTALL)
    job_file = read(shown)
    jobs = expand(NewJob(**job_file.values), job_file.array)
    assert len(jobs) == 10
    assert jobs[1].command == ("python", "train.py", "--lr", "0.1", "--seed", "1")
    assert jobs[9].name == "resnet-0.01"


def test_a_command_is_split_as_a_shell_would() -> None:
    assert read("command: python -c 'print(1)'").values["command"] == ("python", "-c", "print(1)")


@pytest.mark.parametrize(
    ("body", "line", "field", "message"),
    [
        ("command: x\ngnag: 2", 2, "gnag", "did you mean 'gang'?"),
        ("command: x\n\ngang: two", 3, "gang", "not a number"),
        ("command: x\ngang: 1.5", 2, "gang", "not a whole number: '1.5'"),
        (
            "command: x\ngang: 0",
            2,
            "gang",
            "out of range: 0: expected at least 1 and at most 100,000",
        ),
        ("command: x\ngrace_s: 0", 2, "grace_s", "out of range: 0.0: expected at least 0.001"),
        ("command: 'x", 1, None, "invalid YAML"),
        ('command: "it\'s"', 1, "command", "cannot be split"),
        ("command: []", 1, "command", "empty"),
        ("- x", 1, None, "not a mapping"),
        ("command: x\ncommand: y", 2, None, "duplicate field 'command'"),
        ("command: x\nenvironment: [A]", 2, "environment", "not a mapping"),
        ("command: x\nspeeds: {v100: fast}", 2, "speeds", "not a number"),
        ("command: x\narray: {1x: [1]}", 2, "array", "not the name of a variable: '1x'"),
        ("command: x\narray: 9-0", 2, "array", "not a range: '9-0'"),
        ("command: x\narray: {lr: []}", 2, "array", "no values of 'lr': expected a list"),
        ("command: x\narray: {lr: [1, '']}", 2, "array", "empty value of 'lr': expected a list"),
        ("command: x\nname: [a]", 2, "name", "plain text"),
    ],
)
def test_an_error_names_its_line(body: str, line: int, field: str | None, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(body)
    assert (caught.value.line, caught.value.field) == (line, field)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"job.yaml:{line}")


def test_an_unknown_field_lists_all_fields() -> None:
    with pytest.raises(InputError) as caught:
        read("command: [train]\ngpus: 2\n")
    assert str(caught.value).endswith(f"expected one of: {', '.join(FIELDS)}")


@pytest.mark.parametrize(
    ("text", "label", "values"),
    [
        ("0-3", "index", ("0", "1", "2", "3")),
        ("0-20:10", "index", ("0", "10", "20")),
        ("1,5-6", "index", ("1", "5", "6")),
        ("lr=0.1,1e-3", "lr", ("0.1", "1e-3")),
        ("model=resnet-50,vit", "model", ("resnet-50", "vit")),
    ],
)
def test_an_array_is_a_range_or_a_list(text: str, label: str, values: tuple[str, ...]) -> None:
    assert parse_array(text) == (label, values)


@pytest.mark.parametrize(
    ("texts", "label"),
    [(["0-1", "0-2"], "index"), (["lr=0.1", "lr=0.2"], "lr"), (["index=1", "0-2"], "index")],
)
def test_a_variable_has_one_array(texts: list[str], label: str) -> None:
    with pytest.raises(InputError, match=f"array: duplicate variable: '{label}': expected one"):
        parse_arrays(texts)
    assert parse_arrays(["0-1", "lr=0.1,0.2"]) == {"index": ("0", "1"), "lr": ("0.1", "0.2")}


def test_a_sweep_fills_in_its_variables_and_leaves_other_braces() -> None:
    command = ("sh", "-c", "echo ${HOME} {lr} {index}")
    jobs = expand(NewJob(command=command, environment={"LR": "{lr}"}), {"lr": ("0.1", "0.01")})
    assert [job.command[2] for job in jobs] == ["echo ${HOME} 0.1 0", "echo ${HOME} 0.01 1"]
    assert jobs[1].environment == {"LR": "0.01", "FAIRLEAD_ARRAY_INDEX": "1"}


@pytest.mark.parametrize("word", ["--lr={lr}", "{lr}", "out-{lr}.txt"])
def test_placeholder_without_a_value_is_refused(word: str) -> None:
    with pytest.raises(InputError, match=r"array: \{lr\} has no value: expected --array lr=VALUE"):
        expand(NewJob(command=("train", word)), {})
    with pytest.raises(InputError, match=r"\{lr\} has no value"):
        expand(NewJob(command=("train", word, "{seed}")), {"seed": ("1", "2")})
    assert len(expand(NewJob(command=("train", word)), {"lr": ("1", "2")})) == 2


@pytest.mark.parametrize(
    "word", ["{ print }", "print(f'{x}')", "${HOME}", '{"a":1}', "{a,b}", "{}"]
)
def test_other_braces_are_no_placeholders(word: str) -> None:
    assert expand(NewJob(command=("sh", "-c", word)), {})[0].command[2] == word


def test_a_sweep_over_an_unused_variable_is_refused() -> None:
    job = NewJob(command=("train",))
    with pytest.raises(InputError, match=r"array: \{lr\} is not used"):
        expand(job, {"lr": ("1", "2")})
    assert len(expand(job, {"index": ("1", "2")})) == 2


def test_too_many_jobs_are_refused() -> None:
    many = tuple(map(str, range(1000)))
    with pytest.raises(InputError, match="array: 1,000,000 jobs: expected at most 10,000"):
        expand(NewJob(command=("{a}{b}",)), {"a": many, "b": many})
