"""The declaration of a job's fields, and the interfaces that follow from it."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from typer.main import get_command

from fairlead.cli.main import app
from fairlead.files.job_file import FIELDS
from fairlead.live.job_spec import JobSpec, read_spec
from fairlead.live.leases.orders import LaunchOrderBuilder
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.model.lease import Placement
from fairlead.model.submission.fields import declared_fields
from fairlead.model.submission.new_job import NewJob

EVERY_FIELD: dict[str, Any] = {
    "command": ("train", "--lr", "0.1"),
    "name": "resnet",
    "tenant": "vision",
    "workload": "ResNet-50",
    "gang": 2,
    "min_gang": 1,
    "max_gang": 4,
    "max_copies": 1,
    "multijob": "search",
    "steps": 5000,
    "weight": 2.0,
    "priority": -1,
    "deadline_s": 3600.0,
    "after": ("j1", "prepare"),
    "after_any": ("j2",),
    "start_from": "j3",
    "accelerators": ("v100", "p100"),
    "memory_gib": 16.0,
    "speeds": {"v100": 3.2},
    "directory": "/runs",
    "environment": {"OMP_NUM_THREADS": "1"},
    "secrets": ("WANDB_API_KEY", "hub=HF_TOKEN"),
    "preempt": "no",
    "switch": "exit",
    "allow_short": True,
    "retries": 2,
    "grace_s": 10.0,
    "host_memory_gib": 64.0,
    "time_limit_s": 7200.0,
    "progress_pattern": r"step (\d+)",
    "container": "docker://pytorch/pytorch:2.5.1",
    "notify": "https://hooks.example.org/jobs/",
    "notify_preemptions": True,
    "hyperparameters": {"lr": "0.1"},
    "code_snapshot": "0123456789abcdef" * 4,
    "code_commit": "89abcdef" * 5,
    "code_dirty": True,
    "idempotency_key": "search/7",
}
LIVE_ONLY = {
    *("name", "retries", "preempt", "allow_short", "after", "after_any"),
    *("start_from", "hyperparameters"),
    *("notify", "notify_preemptions", "code_commit", "code_dirty"),
    "idempotency_key",
}
"""fields that neither the scheduler nor an engine reads"""
DECLARED = [item.name for item in declared_fields(NewJob)]


def spec(**changes: Any) -> JobSpec:
    return JobSpec(**{"command": ("x",), "id": "j1", **changes})


def test_every_interface_has_every_declared_field() -> None:
    schema = TypeAdapter(NewJob).json_schema()
    options = {item.name for item in get_command(app).commands["submit"].params}  # type: ignore[attr-defined]  # a group
    own = {"file", "array", "snapshot", "as_json", "help"}
    by_users = {item.name for item in declared_fields(NewJob) if item.about.is_option}
    assert [item.name for item in dataclasses.fields(NewJob)] == DECLARED
    assert list(EVERY_FIELD) == DECLARED
    assert set(FIELDS) - {"array", "snapshot"} == by_users
    by_clients = {"code_snapshot", "code_commit", "code_dirty", "idempotency_key"}
    by_clients |= {"hyperparameters"}
    assert {*DECLARED} - by_users == by_clients
    assert set(schema["properties"]) == set(DECLARED)
    assert options - own == by_users
    assert {item.name for item in dataclasses.fields(JobSpec)} - {"id"} == set(DECLARED)
    assert set(json.loads(spec().document())) - {"id"} == set(DECLARED)


def test_every_field_has_help_and_a_description_in_the_schema() -> None:
    properties = TypeAdapter(NewJob).json_schema()["properties"]
    for item in declared_fields(NewJob):
        assert item.about.help.endswith(".")
        assert properties[item.name]["description"] == item.about.help


def test_every_number_has_limits() -> None:
    numbers = [item for item in declared_fields(NewJob) if item.type in (int, float)]
    assert {item.name for item in numbers if item.limits is None} == set()


@pytest.mark.parametrize("name", DECLARED)
def test_every_field_reaches_the_scheduler_or_the_launch_order(name: str, tmp_path: Path) -> None:
    def effect(job: JobSpec) -> tuple[object, object]:
        builder = LaunchOrderBuilder(tmp_path, lambda *_: {})
        cluster = Cluster.of({"v100": 1})
        return job.job(0.0), builder.build(1, job, Placement(0, 0, (0,)), cluster)

    plain = spec(max_gang=8) if name == "gang" else spec()
    changed = dataclasses.replace(plain, **{name: EVERY_FIELD[name]})
    assert (effect(changed) != effect(plain)) is (name not in LIVE_ONLY)


def test_the_wire_and_the_store_carry_every_field() -> None:
    new = NewJob(**EVERY_FIELD)
    assert TypeAdapter(NewJob).validate_json(json.dumps(new.message())) == new
    kept = JobSpec.of(new, "vision").with_id("j7")
    assert read_spec(kept.document()) == kept
    assert {name: getattr(kept, name) for name in DECLARED} == EVERY_FIELD


def test_a_message_leaves_defaults_to_the_server() -> None:
    assert NewJob(command=("x",), gang=1, steps=5).message() == {"command": ("x",), "steps": 5}


def test_an_empty_list_of_accelerators_means_all() -> None:
    assert JobSpec.of(NewJob(command=("x",), accelerators=()), "t").accelerators is None


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("command", (), "command: empty: expected a program and its arguments"),
        ("steps", 0, "steps: out of range: 0: expected at least 1 and at most 1,000,000,000"),
        ("grace_s", float("nan"), "grace_s: out of range: nan: expected at least 0.001"),
        ("speeds", {"v100": 0.0}, "speeds: out of range: v100=0.0: expected steps per second"),
        ("speeds", dict.fromkeys(map(str, range(65)), 1.0), "speeds: 65 entries: expected at"),
        ("max_copies", 0, "max_copies: out of range: 0: expected at least 1"),
        ("max_copies", 2, "max_copies: steps are missing, which copies divide: expected"),
        ("retries", -1, "retries: out of range: -1: expected at least 0"),
        ("container", "--privileged", "container: not the name of an image: '--privileged'"),
        ("container", "a b", "container: not the name of an image: 'a b': expected one such as"),
        ("progress_pattern", "(", "progress_pattern: not a regular expression"),
        ("progress_pattern", "step", "progress_pattern: 0 groups: expected one, as in"),
    ],
)
def test_a_value_outside_its_limits_names_field_and_limit(
    field: str, value: Any, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        dataclasses.replace(NewJob(command=("x",)), **{field: value})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "body",
    [
        {"id": "j1"},
        {"gang": 0},
        {"gang": 100_001},
        {"name": "a\x1b[2J"},
        {"tenant": ""},
        {"environment": {"": "x"}},
        {"speeds": {"v100": -1}},
        {"speeds": {"v100": "fast"}},
        {"command": []},
        {"command": ["x" * 4097]},
        {"after": [""]},
        {"after": ["j1"] * 101},
        {"code_snapshot": "../../etc/passwd"},
    ],
)
def test_a_request_outside_the_limits_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(NewJob).validate_python({"command": ["x"], **body})


def test_the_declaration_loads_no_heavy_library() -> None:
    code = (
        "import sys, fairlead.cli.client.submit;"
        " print({'pydantic', 'numpy', 'yaml', 'rich', 'fastapi'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
