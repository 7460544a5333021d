"""Many jobs in one request to a real server: all or none, with the rights of single requests."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.e2e.support.live_server import LiveServer, json_output
from tests.support.waiting import until

from fairlead.client import Client, ServerError, UnreachableError
from fairlead.model.errors import InputError

SLEEP = {"command": ["sleep", "60"], "workload": "small"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    made = LiveServer(tmp_path_factory.mktemp("batches"), round_s=30.0)
    made.extra = ("--trust-jobs",)
    made.start()
    yield made
    made.clean_up()


def tenant_client(server: LiveServer, tenant: str, *sees: str) -> Client:
    body = {"name": tenant, "role": "tenant", "tenant": tenant, "sees": sees}
    token = server.client.post("/v1/tokens", body)["token"]
    return Client(f"http://127.0.0.1:{server.port}", token)


def states(server: LiveServer, *job_ids: str) -> list[str]:
    return [server.client.job(job_id).state for job_id in job_ids]


def count(server: LiveServer) -> int:
    return len(server.client.jobs())


def test_a_batch_is_submitted_in_order_and_its_jobs_run(server: LiveServer) -> None:
    ran = server.client.submit_all(
        [
            {"command": ["sh", "-c", "echo $WORD $INDEX"], "workload": "small", "name": f"e{i}"}
            | {"environment": {"WORD": "hello", "INDEX": str(i)}}
            for i in range(3)
        ]
    )
    assert [job.name for job in ran] == ["e0", "e1", "e2"]
    assert all(job.has_succeeded for job in server.client.wait_all([job.id for job in ran]))
    assert [server.client.logs(job.id) for job in ran] == [f"hello {i}\n" for i in range(3)]


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"gang": 0}, "jobs[2].gang: out of range: expected 1 or more"),
        ({"gangs": 2}, "jobs[2].gangs: unknown field"),
        ({"gang": 5}, "jobs[2]"),
        ({"command": []}, "jobs[2].command: "),
        ({"command": ["no-such-program"]}, "jobs[2].command: no program 'no-such-program'"),
        ({"after": ["nobody"]}, "jobs[2].after: no job 'nobody'"),
        ({"environment": {"A": "\0"}}, "jobs[2].environment: null byte"),
        ({"start_from": "nobody"}, "jobs[2].start_from: no job 'nobody'"),
        ({"secrets": ["NONE"]}, "jobs[2].secrets: "),
        ({"code_snapshot": "0" * 64}, "jobs[2].code_snapshot: "),
    ],
)
def test_one_bad_job_refuses_the_batch_and_is_named(
    server: LiveServer, bad: dict[str, object], error: str
) -> None:
    before = count(server)
    with pytest.raises(ServerError) as raised:
        server.client.submit_all([SLEEP, SLEEP, SLEEP | bad])
    assert str(raised.value).startswith(error)
    assert count(server) == before


def test_a_repeated_batch_submits_nothing_twice(server: LiveServer) -> None:
    first, again = (
        server.client.submit_all([SLEEP | {"name": n} for n in "ab"], idempotency_key="sweep")
        for _ in range(2)
    )
    assert [job.id for job in again] == [job.id for job in first]
    twice = server.client.submit_all([SLEEP | {"idempotency_key": "one"}] * 2)
    assert twice[0].id == twice[1].id
    ids = [job.id for job in (*first, twice[0])]
    assert [job.state for job in server.client.change_all("cancel", ids).jobs] == ["cancelled"] * 3


def test_a_cap_counts_the_jobs_of_the_batch(server: LiveServer) -> None:
    server.client.ask("PUT", "/v1/tenants/capped", {"id": "capped", "max_jobs": 3})
    with contextlib.closing(tenant_client(server, "capped")) as capped:
        with pytest.raises(ServerError, match=r"jobs\[3\].tenant: 'capped' has 3 jobs"):
            capped.submit_all([SLEEP] * 4)
        assert capped.jobs() == []
        made = capped.submit_all([SLEEP] * 3)
        with pytest.raises(ServerError, match=r"tenant: 'capped' has 3 jobs"):
            capped.submit(["true"], workload="small")
        assert len(capped.change_all("cancel", [job.id for job in made]).jobs) == 3


def test_jobs_of_other_tenants_cannot_be_changed_or_submitted(server: LiveServer) -> None:
    theirs = server.client.submit_all([SLEEP | {"tenant": "victim"}])[0].id
    with (
        contextlib.closing(tenant_client(server, "eve")) as eve,
        contextlib.closing(tenant_client(server, "friend", "victim")) as friend,
    ):
        own = eve.submit_all([SLEEP, SLEEP])
        ids = [own[0].id, theirs, own[1].id]
        for action in ("cancel", "suspend", "resume"):
            with pytest.raises(ServerError, match=rf"jobs\[1\]: no job '{theirs}'") as raised:
                eve.change_all(action, ids)
            assert raised.value.code == "missing"
        with pytest.raises(ServerError, match=rf"jobs\[1\]: no job '{theirs}'"):
            eve.change_all("change", ids, set={"priority": 5})
        with pytest.raises(ServerError, match=rf"jobs\[1\]: no job '{theirs}'"):
            eve.change_all("cancel", ids, force=True)
        assert "cancelled" not in states(server, *ids)
        changed = eve.change_all("cancel", ids, partial=True)
        assert [job.id for job in changed.jobs] == [own[0].id, own[1].id]
        assert [(each.id, each.code) for each in changed.rejected] == [(theirs, "missing")]
        with pytest.raises(ServerError, match=r"jobs\[0\]: tenant 'victim'") as raised:
            friend.change_all("cancel", [theirs])
        assert raised.value.code == "denied"
        changed = friend.change_all("cancel", [theirs], partial=True)
        assert [(each.id, each.code) for each in changed.rejected] == [(theirs, "denied")]
        before = count(server)
        with pytest.raises(ServerError, match=r"jobs\[1\]: tenant 'victim': not permitted"):
            eve.submit_all([SLEEP, SLEEP | {"tenant": "victim"}])
        assert count(server) == before
    assert states(server, theirs) != ["cancelled"]
    server.client.cancel(theirs, force=True)


def test_common_fields_do_not_make_a_small_request_large(server: LiveServer) -> None:
    client, before = server.client, count(server)
    large = {**SLEEP, "environment": {"A": "x" * 100_000}}
    many = {**SLEEP, "after_any": [f"j{i}" for i in range(100)]}
    for common, problem in (large, r"common: 100,\d+ bytes"), (many, "wait for 100000 others"):
        with pytest.raises(ServerError, match=problem):
            client.ask("POST", "/v1/jobs/batch", {"common": common, "jobs": [{}] * 1000})
    assert count(server) == before


def test_changes_are_made_for_all_jobs_or_for_none(server: LiveServer) -> None:
    client = server.client
    ids = [job.id for job in client.submit_all([SLEEP] * 4)]
    ended, *alive = ids
    client.cancel(ended)
    with pytest.raises(ServerError, match=rf"jobs\[2\]: job '{ended}' has already ended"):
        client.change_all("suspend", [alive[0], alive[1], ended])
    assert "suspended" not in states(server, *alive)
    changed = client.change_all("change", [*alive, ended], set={"priority": 7}, partial=True)
    assert [job["priority"] for job in changed.jobs] == [7, 7, 7]
    assert [each.id for each in changed.rejected] == [ended]
    assert {job.state for job in client.change_all("suspend", alive).jobs} == {"suspended"}
    until(lambda: client.job(ended)["devices"] == 0, "its process leaves")
    for action, settings in (("resume", {}), ("cancel", {"force": True})):
        with pytest.raises(ServerError, match=rf"jobs\[3\]: job '{ended}' has already ended"):
            client.change_all(action, [*alive, ended], **settings)
        assert states(server, *alive) == ["suspended"] * 3
    resumed = client.change_all("resume", alive).jobs
    assert "suspended" not in {job.state for job in resumed}
    killed = client.change_all("cancel", alive, force=True).jobs
    assert [job.state for job in killed] == ["cancelled"] * 3
    trail = [
        entry["action"]
        for entry in client.get("/v1/audit", limit=40)
        if entry["subject"] == alive[0]
    ]
    assert trail == ["cancel", "resume", "suspend", "change", "submit"]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"action": "cancel", "jobs": []}, "jobs: too short: expected 1 or more entries"),
        ({"action": "cancel", "jobs": ["a"] * 10_001}, "jobs: too long: expected at most 10000"),
        ({"action": "cancel", "jobs": ["a", 7]}, "jobs[1]: not text"),
        ({"action": "cancel", "jobs": ["a", "b", "a"]}, "jobs[2]: job 'a' is listed twice"),
        ({"action": "remove", "jobs": ["a"]}, "action: unknown value"),
        ({"action": "suspend", "jobs": ["a"], "force": True}, "force: set for another action"),
        ({"action": "change", "jobs": ["a"]}, "set: missing"),
        ({"action": "cancel", "jobs": ["a"], "set": {"priority": 1}}, "set: set for another"),
    ],
)
def test_an_impossible_change_is_refused_with_its_field(
    server: LiveServer, body: dict[str, object], error: str
) -> None:
    with pytest.raises(ServerError) as raised:
        server.client.post("/v1/jobs/changes", body)
    assert str(raised.value).startswith(error)


def test_a_million_ids_or_jobs_are_refused(server: LiveServer) -> None:
    million = [f"j{i}" for i in range(10**6)]
    with pytest.raises(InputError, match="jobs: 1,000,000 jobs: expected from 1 to 10,000"):
        server.client.change_all("cancel", million)
    with contextlib.suppress(UnreachableError):  # it may not wait for the rest of the request
        status, _, _ = server.client.raw("POST", "/v1/jobs/changes", {"jobs": million})
        assert status == 413
    server.client.close()  # the server does not read the rest
    status, _, body = server.client.raw("POST", "/v1/jobs/batch", {"jobs": [{}] * 10**6})
    assert status == 422
    assert "jobs: too long: expected at most 10000 entries" in body.decode()
    assert server.client.raw("GET", "/healthz")[0] == 200


def test_commands_submit_and_cancel_many_jobs_in_one_request_each(server: LiveServer) -> None:
    made = json_output(
        server, "submit", "--workload", "small", "--array", "0-39", "--name", "s-{index}", "true"
    )
    assert [job["name"] for job in made] == [f"s-{i}" for i in range(40)]
    refused = server.cli("submit", "--workload", "small", "--array", "0-3", "no-such-{index}")
    assert "jobs[0].command: no program 'no-such-0'" in refused.stderr
    server.cli("cancel", "--name", "s-*", "--yes")
    until(lambda: not server.client.jobs(name="s-*", unended=True))


def test_a_server_killed_during_a_batch_has_all_of_its_jobs_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashes = tmp_path / "crashes"
    crashes.mkdir()
    monkeypatch.setenv("FAIRLEAD_CRASHES", str(crashes))
    server = LiveServer(tmp_path, round_s=30.0)
    server.forks = False
    batch = [SLEEP | {"command": ["true"], "accelerators": ["k80"]}] * 50
    try:
        server.start()
        url, token = server.client.url, (server.data / "admin.token").read_text()
        # Its answer follows all earlier commits: the next one is that of the batch.
        server.client.ask("PUT", "/v1/tenants/t", {"id": "t"})
        (crashes / "server.commit.inside").touch()
        with (
            contextlib.closing(Client(url, token, reconnect_s=0.0)) as impatient,
            pytest.raises(ServerError, match=r"does not answer .* may have arrived"),
        ):
            impatient.submit_all(batch, idempotency_key="once")
        assert server.process is not None
        server.process.wait(60)
        server.start()
        assert count(server) == 0
        server.client.ask("PUT", "/v1/tenants/t", {"id": "t"})
        # It dies with all jobs, before it answers; the command repeats its request.
        (crashes / "server.commit.performed").touch()
        sweep = ("submit", "--workload", "small", "--array", "0-49", "echo", "{index}")
        with ThreadPoolExecutor(1) as pool:
            submitted = pool.submit(server.cli, *sweep)
            assert server.process is not None
            server.process.wait(60)
            server.start()
            shown = submitted.result(90)
        assert (shown.returncode, shown.stderr) == (0, "")
        assert shown.stdout.split() == [job.id for job in server.client.jobs()]
        assert count(server) == 50
        made = [server.client.submit_all(batch, idempotency_key="once") for _ in range(2)]
        assert [job.id for job in made[0]] == [job.id for job in made[1]]
        assert count(server) == 100
    finally:
        server.clean_up()
