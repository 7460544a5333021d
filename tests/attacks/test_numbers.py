"""Numbers of tenants: extreme values are refused, and no accepted number stops the planning."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from fairlead.core import Scheduler
from fairlead.files import read_instance, read_tenants, read_trace
from fairlead.live.job_spec import JobSpec, read_spec
from fairlead.mechanisms.planner import Planner
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster
from fairlead.model.commands import ComputePlan
from fairlead.model.errors import InputError
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.model.submission.fields import declared_fields
from fairlead.model.submission.new_job import NewJob
from fairlead.server.api import schemas as msg
from fairlead.server.api.job_messages import JobChange
from fairlead.server.config.scheduling import build_scheduling_config

TINY, HUGE = 5e-324, 1.7e308
SPEEDS = SpeedTable({SpeedKey("m", 1, "v100"): 1.0})
BOUNDED_ABOVE_0 = (
    "weight", "deadline_s", "memory_gib", "grace_s", "host_memory_gib", "time_limit_s",
)  # fmt: skip


@pytest.mark.parametrize("name", BOUNDED_ABOVE_0)
@pytest.mark.parametrize("value", [TINY, 1e-300, 1e11, 9e11, HUGE])
def test_a_submission_with_an_extreme_number_is_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{name}: out of range"):
        NewJob(command=("x",), **{name: value})  # type: ignore[arg-type]  # every field is a number
    with pytest.raises((ValidationError, InputError)):
        TypeAdapter(NewJob).validate_python({"command": ["x"], name: value})


def test_every_number_of_a_submission_has_both_bounds() -> None:
    for item in declared_fields(NewJob):
        if item.type in (int, float):
            assert item.limits is not None
            assert item.limits.ge is not None, item.name
            assert item.limits.le is not None, item.name


@pytest.mark.parametrize(
    ("message", "body"),
    [
        (JobChange, {"weight": TINY}),
        (JobChange, {"weight": 1e9}),
        (JobChange, {"deadline_s": TINY}),
        (msg.TenantView, {"id": "t", "weight": TINY}),
        (msg.TenantView, {"id": "t", "guarantee": {"v100": TINY}}),
        (msg.TenantView, {"id": "t", "limit": {"v100": TINY}}),
        (msg.NewToken, {"name": "t", "lasts_s": TINY}),
    ],
)
def test_a_message_with_an_extreme_number_is_refused(message: Any, body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        message.model_validate(body)


def test_quotas_of_0_devices_are_accepted() -> None:
    assert msg.TenantView(id="t", limit={"v100": 0.0}).limit == {"v100": 0.0}


@pytest.mark.parametrize("value", ["5e-324", "1e300"])
@pytest.mark.parametrize("column", ["weight", "total_steps", "deadline_s", "memory_gib"])
def test_a_trace_with_an_extreme_number_is_refused(
    tmp_path: Path, column: str, value: str
) -> None:
    row = {"job_id": "a", "arrival_s": 0, "workload": "m", "gang": 1, "total_steps": 5}
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps(row | {column: float(value)}) + "\n")
    with pytest.raises(InputError, match=f"{column}: out of range"):
        read_trace(path)


@pytest.mark.parametrize("value", [5e-324, 1e300])
@pytest.mark.parametrize("field", ["weight", "steps_left", "deadline_s", "speeds"])
def test_an_instance_with_an_extreme_number_is_refused(
    tmp_path: Path, field: str, value: float
) -> None:
    job: dict[str, Any] = {"id": "a", "speeds": {"v100": 1.0}}
    job[field] = {"v100": value} if field == "speeds" else value
    path = tmp_path / "instance.json"
    path.write_text(json.dumps({"cluster": {"v100": 1}, "jobs": [job]}))
    with pytest.raises(InputError, match="out of range"):
        read_instance(path)


@pytest.mark.parametrize("tenant", [{"weight": TINY}, {"guarantee": {"v100": TINY}}])
def test_a_tenants_file_with_an_extreme_number_is_refused(
    tmp_path: Path, tenant: dict[str, Any]
) -> None:
    path = tmp_path / "tenants.json"
    path.write_text(json.dumps({"tenants": [{"id": "t", **tenant}]}))
    with pytest.raises(InputError, match="out of range"):
        read_tenants(path)


def test_a_stored_job_outside_the_bounds_is_loaded_within_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stored = json.loads(JobSpec(command=("x",), id="j1").document())
    stored |= {"weight": TINY, "grace_s": 9e11, "deadline_s": HUGE, "retries": 10**9}
    loaded = read_spec(json.dumps(stored))
    for item in declared_fields(NewJob):
        item.check(getattr(loaded, item.name))
    assert loaded.grace_s == 3600.0
    assert "grace_s" in capsys.readouterr().out


@pytest.mark.parametrize("policy", ["max-min", "tenant-max-min", "makespan", "finish-time", "oef"])
@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize("weight", [TINY, HUGE])
def test_an_old_log_with_an_extreme_weight_still_gets_plans(
    policy: str, weight: float, cancelled: bool
) -> None:
    config = build_scheduling_config(policy, None, 60.0, SPEEDS)
    scheduler: Scheduler[Any] = Scheduler(
        Cluster.of({"v100": 2}), SPEEDS, config.mechanism, plan_lead_s=0.0
    )
    good = Job(id="good", workload="m", total_steps=100.0)
    scheduler.handle(ev.JobSubmitted(0.0, good))
    scheduler.handle(ev.JobSubmitted(0.0, replace(good, id="bad", weight=weight)))
    if cancelled:
        scheduler.handle(ev.JobCancelled(0.5, "bad"))
    (command,) = (c for c in scheduler.handle(ev.PlanDue(1.0)) if isinstance(c, ComputePlan))
    plan, _ = Planner(config.mechanism).plan(command.snapshot, command.memory)
    assert 0 in plan.start.job.tolist()
