"""Commands and clients for many jobs, and the rules for tenants and commands at submission."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.support.live_server import LiveServer, json_output


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    made = LiveServer(tmp_path_factory.mktemp("many"))
    made.creates_tenants = False
    made.start()
    yield made
    made.clean_up()


def test_submission_for_an_unknown_tenant_is_refused(server: LiveServer) -> None:
    refused = server.cli("submit", "--tenant", "visoin", "--workload", "small", "true")
    assert refused.returncode == 1
    assert "tenant: no tenant 'visoin': expected one of default" in refused.stderr
    assert "fairlead tenants set visoin" in refused.stderr
    assert json_output(server, "tenants") == []
    assert server.cli("tenants", "set", "vision").returncode == 0
    made = server.cli("submit", "--tenant", "vision", "--workload", "small", "sleep", "60")
    job = made.stdout.strip()
    refused = server.cli("tenants", "remove", "vision", "--yes")
    assert "'vision' has 1 job that has not ended" in refused.stderr
    explained = server.cli("explain", "vision").stdout
    assert "Tenant vision holds" in explained
    assert "1 running" in explained or "1 queued" in explained
    assert server.cli("explain", "vision", "--tenant", "--json").returncode == 0
    assert "no job or tenant 'nobody'" in server.cli("explain", "nobody").stderr
    by_name = server.cli("suspend", "lr-1").stderr
    assert "no job 'lr-1': expected a job's id: `fairlead jobs --name NAME` finds" in by_name
    assert server.cli("cancel", job).stdout == f"{job}: cancelled\n"
    server.client.wait(job, timeout_s=90)
    assert server.cli("tenants", "remove", "vision", "--yes").returncode == 0
    assert json_output(server, "tenants") == []
    assert "no tenant 'vision'" in server.cli("submit", "--tenant", "vision", "true").stderr


def test_token_of_a_tenant_names_the_tenant(server: LiveServer) -> None:
    server.client.post("/v1/tokens", {"name": "a", "role": "tenant", "tenant": "nlp"})
    job = server.client.submit(["true"], workload="small", tenant="nlp")
    assert server.client.wait(job.id, timeout_s=90).has_succeeded


def test_command_that_does_not_exist_is_refused(server: LiveServer, tmp_path: Path) -> None:
    before = len(server.client.jobs())
    refused = server.cli("submit", "--workload", "small", "no-such-program")
    assert "command: no program 'no-such-program' in the job's PATH" in refused.stderr
    refused = server.cli(
        "submit", "--workload", "small", "--directory", tmp_path, "./run.sh", "{lr}"
    )
    assert "{lr} has no value" in refused.stderr
    refused = server.cli("submit", "--workload", "small", "--directory", tmp_path, "./run.sh")
    assert f"no such file: {tmp_path / 'run.sh'}" in refused.stderr
    assert len(server.client.jobs()) == before


def test_commands_change_many_jobs(server: LiveServer) -> None:
    client = server.client
    for number in range(12):
        settings = {"name": f"lr-{number}", "multijob": "search", "workload": "small"}
        client.submit(["sleep", "60"], **settings)
    unconfirmed = server.cli("suspend", "--multijob", "search")
    assert unconfirmed.returncode == 2
    assert "change 12 jobs? nobody can answer here: expected --yes" in unconfirmed.stderr
    suspended = server.cli("suspend", "--multijob", "search", "--yes")
    assert "12 jobs: 12 suspended" in suspended.stderr
    assert len(client.jobs(state="suspended", multijob="search")) == 12
    resumed = json.loads(server.cli("resume", "--name", "lr-1*", "--json").stdout)
    assert {job["name"] for job in resumed} == {"lr-1", "lr-10", "lr-11"}
    ids = [job.id for job in client.jobs(multijob="search")]
    changed = server.cli("priority", ids[0], ids[1], "7")
    assert changed.stdout == f"{ids[0]}: priority 7\n{ids[1]}: priority 7\n"
    assert server.cli("priority", ids[0], "-3").stdout == f"{ids[0]}: priority -3\n"
    partly = server.cli("cancel", ids[0], "no-such-job")
    assert partly.returncode == 1
    assert "2 jobs: 1 cancelled, 1 rejected" in partly.stderr
    assert server.cli("cancel", "--name", "lr-*", "--yes").stdout.count("cancelled") == 11
    assert "no unended job matches" in server.cli("cancel", "--name", "lr-*").stderr
    for job in client.wait_all(ids, timeout_s=90):
        assert (job.state, job.has_ended, job.has_succeeded) == ("cancelled", True, False)


def test_jobs_lists_live_jobs_unless_others_are_selected(server: LiveServer) -> None:
    client = server.client
    live = client.submit(["sleep", "60"], workload="small", name="alive")
    ended = client.submit(["echo", "hello"], workload="small", name="ended")
    assert client.wait(ended.id, timeout_s=90).has_succeeded
    assert client.logs(ended.id) == "hello\n"
    assert [job["id"] for job in json_output(server, "jobs")] == [live.id]
    everything = {job["id"] for job in json_output(server, "jobs", "--all")}
    assert {live.id, ended.id} <= everything
    assert [job["id"] for job in json_output(server, "jobs", "--name", "ended")] == [ended.id]
    assert client.suspend(live.id).state == "suspended"
    assert client.resume(live.id).state != "suspended"
    assert client.cancel(live.id, force=True).state == "cancelled"
    with pytest.raises(TimeoutError):
        client.wait_all([client.submit(["sleep", "60"], workload="small").id], timeout_s=0.1)
    assert [job.id for job in client.jobs(unended=True)] != []
