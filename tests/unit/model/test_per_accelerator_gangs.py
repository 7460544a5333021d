"""Jobs whose gang differs by accelerator: parsing, files, admission, simulation."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlead.core import (
    Scheduler,
    decode_event,
    encode_event,
    load_state,
    save_state,
    state_bytes,
)
from fairlead.files import check_trace, read_instance, read_trace
from fairlead.files.job_file import parse_job_file
from fairlead.files.parsing.text import SourceText
from fairlead.files.traces.trace import format_trace
from fairlead.insight.advice import advise
from fairlead.insight.counterfactuals import with_jobs
from fairlead.insight.explain.explain import explain
from fairlead.live.job_spec import JobSpec, read_spec
from fairlead.mechanisms.factory import create_live_mechanism, create_mechanism
from fairlead.model import events as ev
from fairlead.model.capabilities import Capabilities
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.job import Job, format_accelerators, parse_accelerators
from fairlead.model.snapshot import snapshot_of
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.policies.rules.priority import create_policy
from fairlead.registry import available
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario

SPEEDS = SpeedTable(
    {
        SpeedKey("net", gang, kind): speed * gang
        for gang in (1, 2, 4)
        for kind, speed in (("v100", 4.0), ("k80", 1.0))
    }
)
CLUSTER = Cluster.of({"v100": 1, "k80": 4}, per_node=4)


def job(name: str = "a", **settings: Any) -> Job:
    given: dict[str, Any] = {"workload": "net", "total_steps": 4000.0, **settings}
    return Job(id=name, **given)


def either(name: str = "a", **settings: Any) -> Job:
    return job(name, accelerators=("v100", "k80"), gangs={"k80": 2}, **settings)


# -- jobs --------------------------------------------------------------------------------------


def test_numbers_of_devices_follow_their_accelerators() -> None:
    assert parse_accelerators(["v100", " k80 = 2"]) == (("v100", "k80"), {"k80": 2})
    assert format_accelerators(either()) == ("v100", "k80=2")
    assert format_accelerators(job()) is None
    assert (either().gang_on("v100"), either().gang_on("k80")) == (1, 2)


@pytest.mark.parametrize("entry", ["k80=0", "k80=x", "k80=", "k80=-1", "k80=1.5", "=2", "k80=٢"])
def test_invalid_numbers_of_devices_are_rejected(entry: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_accelerators(["v100", entry])
    assert refused.value.field == "accelerators"
    assert repr(entry) in refused.value.problem


def test_an_accelerator_with_two_numbers_is_rejected() -> None:
    for listed in (["k80=2", "k80=4"], ["k80", "k80=4"], ["k80=2", "k80"]):
        with pytest.raises(InputError, match="once"):
            parse_accelerators(listed)


def test_equal_numbers_are_a_gang() -> None:
    names = ("v100", "k80")
    assert job(gang=2, accelerators=names) == job(accelerators=names, gangs={"v100": 2, "k80": 2})
    assert job(gang=2, accelerators=names) == job(gang=2, accelerators=names, gangs={"k80": 2})
    both = job(accelerators=names, gangs={"v100": 2, "k80": 4})
    assert (both.gang, both.gangs) == (2, {"k80": 4})


def test_numbers_with_an_elastic_gang_are_rejected() -> None:
    with pytest.raises(InputError, match="elastic") as refused:
        either(max_gang=4)
    assert refused.value.field == "accelerators"
    with pytest.raises(InputError, match="one of the job's accelerators"):
        job(gangs={"k80": 2})


# -- files --------------------------------------------------------------------------------------


def test_traces_keep_the_numbers(tmp_path: Path) -> None:
    csv, jsonl = tmp_path / "t.csv", tmp_path / "t.jsonl"
    csv.write_text(
        "job_id,arrival_s,workload,gang,total_steps,accelerators\n"
        'a,0,net,1,4000,"v100,k80=2"\nb,0,net,1,4000,v100;k80=2\nc,0,net,1,4000,k80\n'
    )
    expected = (either("a"), either("b"), job("c", accelerators=("k80",)))
    assert read_trace(csv).jobs == expected
    jsonl.write_text(format_trace(expected, "jsonl"))
    assert '["v100", "k80=2"]' in jsonl.read_text()
    assert read_trace(jsonl).jobs == expected
    csv.write_text(format_trace(expected))
    assert read_trace(csv).jobs == expected


def test_a_wrong_number_in_a_trace_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "job_id,arrival_s,workload,gang,total_steps,accelerators\na,0,net,1,4000,v100;k80=0\n"
    )
    with pytest.raises(InputError) as refused:
        read_trace(path)
    assert (refused.value.line, refused.value.field) == (2, "accelerators")


def test_job_files_keep_the_numbers() -> None:
    for listed in ("[v100, k80=2]", "v100,k80=2"):
        result = parse_job_file(SourceText("j", f"command: [x]\naccelerators: {listed}\n"))
        assert result.values["accelerators"] == ("v100", "k80=2")
    with pytest.raises(InputError) as refused:
        parse_job_file(SourceText("j", "command: [x]\naccelerators: [v100, k80=x]\n"))
    assert (refused.value.line, refused.value.field) == (2, "accelerators")


def test_instances_keep_the_numbers(tmp_path: Path) -> None:
    path = tmp_path / "i.json"
    path.write_text(
        '{"cluster": {"v100": 1, "k80": 4}, "jobs":'
        ' [{"id": "a", "speeds": {"v100": 4, "k80": 2}, "gangs": {"k80": 2}}]}'
    )
    snap = snapshot_of(read_instance(path))
    assert snap.gang_on.tolist() == [[1, 2]]
    path.write_text(path.read_text().replace('"k80": 2}}', '"k80": 0}}'))
    with pytest.raises(InputError, match=r"jobs\[0\].gangs.k80"):
        read_instance(path)
    path.write_text(path.read_text().replace('"k80": 0}}', '"k80": 9, "v100": 2}}'))
    with pytest.raises(InputError, match="needs 2 v100 or 9 k80, the cluster has 1 or 4"):
        read_instance(path)


def test_stored_specs_keep_the_numbers() -> None:
    spec = JobSpec(command=("x",), id="a", workload="net", accelerators=("v100", "k80=2"))
    made = read_spec(spec.document()).job(0.0)
    assert (made.accelerators, dict(made.gangs)) == (("v100", "k80"), {"k80": 2})


# -- admission ----------------------------------------------------------------------------------


def test_a_trace_is_checked_against_the_numbers() -> None:
    check_trace([either()], SPEEDS, CLUSTER)
    with pytest.raises(InputError, match="different numbers") as refused:
        check_trace([either()], SPEEDS, CLUSTER, Capabilities())
    assert refused.value.field == "accelerators"
    with pytest.raises(InputError, match="no gang of 3") as refused:
        check_trace([job(accelerators=("v100", "k80"), gangs={"k80": 3})], SPEEDS, CLUSTER)
    assert refused.value.field == "accelerators"
    large = job(gang=2, accelerators=("v100", "k80"), gangs={"k80": 4})
    with pytest.raises(InputError, match="needs 2 v100 or 4 k80, the cluster has 1 v100, 2 k80"):
        check_trace([large], SPEEDS, Cluster.of({"v100": 1, "k80": 2}))


@pytest.mark.parametrize("name", ["gandiva", "gandiva-fair", "hadar", "oef", "trading"])
def test_other_mechanisms_reject_such_a_job_without_side_effects(name: str) -> None:
    scheduler: Scheduler[Any] = Scheduler(CLUSTER, SPEEDS, create_live_mechanism(name))
    before = state_bytes(scheduler)
    with pytest.raises(InputError, match="different numbers") as refused:
        scheduler.handle(ev.JobSubmitted(0.0, either(tenant="new")))
    assert refused.value.field == "accelerators"
    assert state_bytes(scheduler) == before


def test_every_policy_supports_or_rejects_them() -> None:
    both = InstanceJob(id="a", speeds={"v100": 4.0, "k80": 2.0}, gangs={"k80": 2})
    snap = snapshot_of(Instance(CLUSTER, (both,)))
    took = []
    for name in available("policies"):
        policy = create_policy(name)
        if policy.capabilities.per_accelerator_gangs:
            took.append(name)
            if not name.startswith("cost"):  # these want prices
                assert policy.allocate(snap).share[0, 0] > 0
        else:
            with pytest.raises(InputError, match="different numbers"):
                policy.allocate(snap)
    assert len(took) == 11


# -- scheduling ---------------------------------------------------------------------------------


def test_logs_and_saved_states_keep_the_numbers_and_omit_them_for_other_jobs() -> None:
    event = ev.JobSubmitted(0.0, either())
    assert decode_event(encode_event(event), type(None)) == event
    assert "gangs" in encode_event(event)
    assert "gangs" not in encode_event(ev.JobSubmitted(0.0, job()))
    mechanism = create_live_mechanism("max-min")
    first: Scheduler[Any] = Scheduler(CLUSTER, SPEEDS, mechanism)
    first.handle(event)
    second: Scheduler[Any] = Scheduler(CLUSTER, SPEEDS, mechanism)
    load_state(second, save_state(first))
    assert second.jobs.jobs == [either()]
    assert state_bytes(second) == state_bytes(first)
    gangs = second.jobs.profiles.gangs
    assert gangs is not None
    assert gangs.tolist() == [[1, 2]]


@pytest.mark.parametrize("mechanism", [None, "gavel", "units", "ideal"])
def test_simulation_uses_the_numbers_for_devices_and_speeds(mechanism: str | None) -> None:
    """The V100 makes 4 steps/s, two K80 make 2: with one V100 one of two jobs is on the K80s."""
    trace = [either("a"), either("b")]
    scenario = Scenario(
        cluster=CLUSTER, speeds=SPEEDS, jobs=trace, mechanism=create_mechanism("fifo", mechanism)
    )
    record, _ = simulate(scenario)
    v100, k80 = record.device_s.T
    assert v100.sum() * 4.0 + k80.sum() / 2 * 2.0 == pytest.approx(8000.0)
    assert v100[0] == pytest.approx(1000.0)
    assert k80[1] > 0
    assert record.finished_at[0] == pytest.approx(1000.0)


def test_advice_gives_a_waiting_job_its_number_of_devices() -> None:
    jobs = tuple(
        InstanceJob(id=name, speeds={"v100": 4.0, "k80": 2.0}, gangs={"k80": 2}) for name in "abc"
    )
    snap = snapshot_of(Instance(CLUSTER, jobs))
    advice = advise(snap, create_policy("max-min"))
    by_job = {one.job: (one.action, one.accelerator, one.devices) for one in advice}
    assert sorted(by_job.values()) == [
        ("start", "k80", 2),
        ("start", "k80", 2),
        ("start", "v100", 1),
    ]


def test_explanations_use_the_numbers() -> None:
    jobs = tuple(
        InstanceJob(id=name, speeds={"v100": 4.0, "k80": 2.0}, gangs={"k80": 2}) for name in "abcd"
    )
    snap = snapshot_of(Instance(CLUSTER, jobs))
    explanation = explain(snap, create_policy("max-min"), "a")
    assert explanation is not None
    other = with_jobs(snap, np.array([1]), gang=np.array([1]))
    assert other.gang_on.tolist() == [[1, 2], [1, 1], [1, 2], [1, 2]]


def test_the_ranks_of_a_job_are_those_of_its_largest_gang() -> None:
    command = ("true",)
    assert JobSpec(id="j", command=command, directory="/").ranks == 1
    apart = JobSpec(id="j", command=command, directory="/", accelerators=("v100", "k80=4"), gang=2)
    assert apart.ranks == 4
    assert JobSpec(id="j", command=command, directory="/", gang=2, max_gang=8).ranks == 8
