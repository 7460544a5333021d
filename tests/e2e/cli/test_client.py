"""The command line against a real server: submitting in every form, watching, explaining."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.support.live_server import LiveServer, said

from fairlead.client import Client, ServerError


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    made = LiveServer(tmp_path_factory.mktemp("cli"), devices="v100=2,k80=2", round_s=30.0)
    made.start()
    yield made
    made.clean_up()


# -- submitting ---------------------------------------------------------------------------------


def test_a_python_file_runs_with_this_interpreter_and_its_own_options(server: LiveServer) -> None:
    script = server.root / "script.py"
    script.write_text("import sys; print(sys.executable, *sys.argv[1:])")
    made = server.cli("submit", "--workload", "small", script, "--lr", "0.1", "-v")
    assert made.returncode == 0, made.stderr
    job = made.stdout.strip()
    assert server.client.wait(job, timeout_s=30)["state"] == "finished"
    assert server.cli("logs", job).stdout == f"{sys.executable} --lr 0.1 -v\n"
    nobody = server.cli("logs", job, "--rank", "7")
    assert (nobody.stdout, nobody.stderr) == (
        "",
        "rank 7 has printed nothing (the job runs alone)\n",
    )


def test_a_log_can_be_followed_past_the_size_of_one_file(server: LiveServer) -> None:
    code = "import time; print('x' * (33 << 20)); time.sleep(1.0); print('last')"
    job = server.client.submit([sys.executable, "-u", "-c", code], workload="small")["id"]
    followed = server.cli("logs", job, "--follow").stdout
    whole = "x" * (33 << 20) + "\nlast\n"
    assert len(followed) == len(whole)
    assert followed == whole
    assert server.cli("logs", job).stdout == whole
    _, headers, text = server.client.raw("GET", f"/v1/jobs/{job}/logs?after={len(whole) - 5}")
    assert (text, headers["fairlead-next"]) == (b"last\n", str(len(whole)))
    assert len(list(server.data.glob(f"jobs/{job}/logs/*"))) == 2


def test_commands_are_looked_up_where_they_are_submitted(server: LiveServer) -> None:
    tool = server.root / "bin" / "mytool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho mine\nexit 3\n")
    tool.chmod(0o755)
    env = {**server.environment, "PATH": f"{tool.parent}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "fairlead", "submit", "--workload", "small", "--retries", "0"]
    made = subprocess.run(
        [*command, "mytool"], capture_output=True, text=True, env=env, check=True
    )
    job = server.client.wait(made.stdout.strip(), timeout_s=30)
    assert (job["state"], job["message"]) == ("failed", "it exited with 3")
    assert server.cli("logs", job["id"]).stdout == "mine\n"


def test_a_job_file_says_all_of_a_job_and_options_win_over_it(server: LiveServer) -> None:
    path = server.root / "job.yaml"
    path.write_text(
        "name: from-file\ncommand: sleep 0.1\nworkload: small\ngang: 2\nsteps: 7\nweight: 2.5\n"
        "priority: 3\ndeadline_s: 600\naccelerators: [v100]\nenvironment: {A: 1}\nretries: 0\n"
    )
    refused = server.cli("submit", "--file", path)
    assert refused.returncode == 1  # the table has no speed of it on two devices
    assert "gang" in refused.stderr
    made = said(server, "submit", "--file", path, "--gang", 1, "--name", "from-flag")
    shown = {key: made[key] for key in ("name", "gang", "total_steps", "weight", "priority")}
    assert shown == {
        "name": "from-flag", "gang": 1, "total_steps": 7, "weight": 2.5, "priority": 3
    }  # fmt: skip
    assert made["command"] == ["sleep", "0.1"]


def test_a_job_that_cannot_be_named_or_run_is_one_clear_line(server: LiveServer) -> None:
    for command in ("job", "logs", "cancel"):
        refused = server.cli(command, "")
        assert refused.returncode == 1
        assert refused.stderr.startswith("fairlead: a job's id is empty")
    refused = server.cli("submit", "--", "true")
    assert refused.returncode == 1
    assert "workload: none is given" in refused.stderr
    assert "give one of its 2 workloads (e.g. 'big')" in refused.stderr


def test_a_refusal_ends_in_the_code_that_the_server_gave_it(server: LiveServer) -> None:
    made = said(server, "submit", "--workload", "small", "true")["id"]
    server.client.wait(made, timeout_s=30)
    refused = server.cli("logs", made, "--rank", 99_999_999)
    assert refused.returncode == 1
    assert refused.stderr.startswith("fairlead: rank: Input should be less than 100000")
    for code, command in (
        ("input", ("submit", "--workload", "unheard-of", "true")),
        ("missing", ("job", "j999")),
        ("protocol", ("cancel", made)),
        ("input", ("logs", made, "--rank", 99_999_999)),
    ):
        assert server.cli(*command).stderr.endswith(f" [{code}]\n")
    stranger = {**server.environment, "FAIRLEAD_TOKEN": "fl_0_0"}
    asked = [sys.executable, "-m", "fairlead", "jobs"]
    denied = subprocess.run(asked, capture_output=True, text=True, env=stranger, check=False)
    assert denied.stderr.endswith(" [denied]\n")


def test_a_body_that_is_no_json_is_refused_as_that(server: LiveServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    token = (server.data / "admin.token").read_text()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("POST", "/v1/jobs", "{command: true}", headers)
    problem = json.loads(connection.getresponse().read())["error"]
    connection.close()
    assert (problem["code"], problem["field"]) == ("input", None)
    assert problem["message"].startswith("the body is no JSON document: Expecting property name")
    assert problem["message"].endswith("(at character 1)")


def test_names_cannot_break_what_others_see(server: LiveServer) -> None:
    odd = "[/b] :x:"
    made = said(server, "submit", "--name", odd, "--tenant", "a/b", "--workload", "small", "true")
    for command in (("jobs",), ("job", made["id"]), ("shares",), ("tenants",)):
        shown = server.cli(*command)
        assert shown.returncode == 0, shown.stderr
        assert odd in shown.stdout or "a/b" in shown.stdout
    refused = server.cli("submit", "--name", "a\x1b[2J", "--workload", "small", "true")
    assert refused.returncode == 1
    assert "name: " in refused.stderr


def test_what_is_not_given_of_a_tenant_stays_as_it_is(server: LiveServer) -> None:
    def changed(*options: str) -> Any:
        made = server.cli("tenants", "set", "a/b", *options, "--json")
        assert made.returncode == 0, made.stderr
        return json.loads(made.stdout)

    changed("--weight", "2", "--guarantee", "v100=1", "--limit", "k80=2", "--parent", "top")
    now = changed("--priority", "3")
    assert (now["weight"], now["priority"], now["parent"]) == (2.0, 3, "top")
    assert (now["guarantee"], now["limit"]) == ({"v100": 1.0}, {"k80": 2.0})
    now = changed("--guarantee", "v100=none", "--parent", "")
    assert (now["guarantee"], now["limit"], now["parent"]) == ({}, {"k80": 2.0}, None)


def test_where_tenants_weights_do_not_count_it_is_said(server: LiveServer) -> None:
    hint = "max-min divides among jobs, whatever their tenants' weights; hierarchical or"
    assert server.client.get("/v1/about")["divides_among_tenants"] is False
    assert hint in server.cli("tenants", "set", "heavy", "--weight", 3).stderr
    assert server.cli("tenants", "set", "heavy", "--priority", 0).stderr == ""
    assert hint in server.cli("shares").stdout


def test_tokens_are_listed_with_whom_they_see_and_when_they_expire(server: LiveServer) -> None:
    server.cli("tokens", "make", "old", "--tenant", "x", "--sees", "y", "--lasts", "0.001")
    listed = server.cli("tokens").stdout
    assert re.search(r"old +│ tenant +│ x +│ y +│ 20\d\d-", listed)
    assert "has" in listed
    assert re.search(r"admin +│ admin +│ +│ +│ never", listed)
    refused = server.cli("tokens", "make", "all", "--role", "viewer", "--tenant", "x")
    assert refused.returncode == 1
    assert "tenant: a token of the role viewer sees all" in refused.stderr


def test_a_job_is_shown_with_times_that_people_read(server: LiveServer) -> None:
    made = server.cli("submit", "--workload", "small", "--", "true").stdout.strip()
    at = server.client.wait(made, timeout_s=30)["submitted_at"]
    shown = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    assert re.search(rf"submitted_at\W+{shown}", server.cli("job", made).stdout)


def test_a_bad_job_file_is_refused_with_its_line(server: LiveServer) -> None:
    path = server.root / "bad.yaml"
    path.write_text("command: true\nworkload: small\ngnag: 2\n")
    refused = server.cli("submit", "--file", path)
    assert refused.returncode == 1
    assert "bad.yaml:3" in refused.stderr
    assert "did you mean 'gang'?" in refused.stderr


def test_a_sweep_makes_one_job_for_each_combination(server: LiveServer) -> None:
    made = said(
        server, "submit", "--workload", "small", "--array", "lr=0.1,0.01", "--array", "seed=0-1",
        "--name", "try-{lr}-{seed}", "--multijob", "search", "--",
        "sh", "-c", "echo {lr} {seed} $FAIRLEAD_ARRAY_INDEX",
    )  # fmt: skip
    assert [job["name"] for job in made] == [
        "try-0.1-0", "try-0.1-1", "try-0.01-0", "try-0.01-1"
    ]  # fmt: skip
    for job in made:
        assert server.client.wait(job["id"], timeout_s=30)["state"] == "finished"
    logs = [server.cli("logs", job["id"]).stdout for job in made]
    assert logs == ["0.1 0 0\n", "0.1 1 1\n", "0.01 0 2\n", "0.01 1 3\n"]
    of_search = said(server, "jobs", "--multijob", "search")
    assert [job["id"] for job in of_search] == [job["id"] for job in made]
    assert len(said(server, "jobs", "--name", "try-0.1-*")) == 2
    assert said(server, "jobs", "--multijob", "search", "--last", 1)[0]["id"] == made[-1]["id"]


@pytest.mark.parametrize(
    ("listed", "status", "said_why"),
    [
        ("v100,k80=0", 2, "'k80=0' is not allowed; give a whole number of devices"),
        ("v100,k80=x", 2, "'k80=x' is not allowed; give a whole number of devices"),
        ("v100,v100=2", 2, "each accelerator once"),
        ("v100,tpu=2", 1, "tpu=2 can never run: the cluster has 0 tpu; of v100, k80 give"),
        ("v100,k80=9", 1, "k80=9 can never run: the cluster has 2 k80"),
        ("k80=9", 1, "k80=9 can never run: the cluster has 2 k80"),
    ],
)
def test_numbers_of_devices_that_cannot_be_are_refused_with_the_reason(
    server: LiveServer, listed: str, status: int, said_why: str
) -> None:
    refused = server.cli("submit", "--workload", "big", "--accelerators", listed, "--", "true")
    assert refused.returncode == status
    assert said_why in refused.stderr
    body = {"command": ["true"], "workload": "big", "accelerators": listed.split(",")}
    answer, _, text = server.client.raw("POST", "/v1/jobs", body)
    assert (answer, json.loads(text)["error"]["field"]) == (422, "accelerators")


def test_a_policy_that_cannot_count_by_accelerator_says_so(own_server: LiveServer) -> None:
    own_server.devices, own_server.extra = "v100=1,k80=2", ("--policy", "gandiva")
    own_server.start()
    refused = own_server.cli(
        "submit", "--workload", "big", "--accelerators", "v100,k80=2", "--", "true"
    )
    assert refused.returncode == 1
    assert "different numbers of devices on different accelerators" in refused.stderr
    assert "or use max-min" in refused.stderr


# -- watching -----------------------------------------------------------------------------------


def test_events_follow_a_job_from_its_submission_to_its_end(server: LiveServer) -> None:
    seen: list[dict[str, Any]] = []
    begun = threading.Event()

    def listen() -> None:
        follower = Client(f"http://127.0.0.1:{server.port}", server.client._token)
        begun.set()
        for event in follower.events():
            seen.append(event)
            if event["event"] == "lease.ended":
                return

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    begun.wait(5)
    time.sleep(0.3)
    job = server.client.submit(["true"], workload="small")["id"]
    server.client.ask("PATCH", f"/v1/jobs/{job}", {"priority": 2})
    thread.join(20)
    assert not thread.is_alive()
    kinds = [event["event"] for event in seen if event.get("job") == job]
    assert kinds[0] == "job.submitted"
    assert {"job.changed", "lease.started", "lease.ended"} <= set(kinds)


def test_watch_shows_a_job_that_comes_later(server: LiveServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fairlead", "jobs", "--watch", "--name", "seen-by-watch"]
    shown = tmp_path / "shown"

    def soon(text: str) -> bool:
        ends_at = time.monotonic() + 20
        while text not in shown.read_text() and time.monotonic() < ends_at:
            time.sleep(0.1)
        return text in shown.read_text()

    with (
        shown.open("w") as out,
        subprocess.Popen(command, stdout=out, env=server.environment) as watching,
    ):
        # No terminal: what there is to see must not wait until the command ends.
        assert soon("0 jobs")
        server.client.submit(["true"], workload="small", name="seen-by-watch")
        assert soon("seen-by-watch")
        assert soon("finished")
        watching.send_signal(signal.SIGINT)
        watching.wait(20)
    assert shown.read_text().count("0 jobs") == 1


def test_priority_changes_and_may_be_negative(server: LiveServer) -> None:
    job = server.client.submit(["sleep", "60"], workload="small")["id"]
    assert said(server, "priority", job, 7)["priority"] == 7
    assert server.cli("priority", job, -3).stdout == f"{job}: priority -3\n"
    assert server.client.job(job)["priority"] == -3
    server.client.post(f"/v1/jobs/{job}/cancel")


# -- looking into it ------------------------------------------------------------------------------


def test_explain_and_audit_speak_of_what_runs_now(server: LiveServer) -> None:
    jobs = [server.client.submit(["sleep", "60"], workload="big")["id"] for _ in range(5)]
    found = said(server, "explain", jobs[0])
    assert (found["who"], found["policy"], found["kind"]) == (jobs[0], "max-min", "job")
    assert found["prices"]["v100"] > found["prices"]["k80"] > 0
    told = server.cli("explain", jobs[0])
    assert f"Under max-min the job {jobs[0]} makes" in told.stdout.replace("\n", " ")
    audit = said(server, "audit", "--live", "--lies", 0)
    assert audit["policy"] == "max-min"
    assert audit["pareto_slack"] < 1e-6
    for job in jobs:
        server.client.post(f"/v1/jobs/{job}/cancel")
    ended = server.cli("explain", jobs[0])
    assert ended.returncode == 1
    assert "not scheduled now" in ended.stderr


def test_a_job_without_any_node_that_is_up_can_be_asked_about(own_server: LiveServer) -> None:
    own_server.start()
    client = own_server.client
    assert client.get("/v1/instance")["jobs"] == []
    job = client.submit(["sleep", "60"], workload="big")["id"]
    assert client.get("/v1/instance")["jobs"][0]["id"] == job
    for node in client.get("/v1/nodes"):
        client.post(f"/v1/nodes/{node['id']}/drain")
    assert client.raw("GET", f"/v1/jobs/{job}/explain")[0] in (200, 409)
    assert client.raw("GET", "/v1/instance")[0] == 409


def test_doctor_finds_a_healthy_server_and_what_is_wrong_with_a_sick_one(
    server: LiveServer,
) -> None:
    env = {**server.environment, "FAIRLEAD_EMULATE": "v100=1", "FAIRLEAD_PORT": str(server.port)}
    command = [sys.executable, "-m", "fairlead", "doctor", "--json"]
    found = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert found.returncode == 0, found.stdout
    levels = {one["what"]: one["level"] for one in json.loads(found.stdout)["findings"]}
    assert set(levels.values()) == {"ok"}
    assert {"database", "disk", "server", "job library", "devices"} <= set(levels)
    token = server.data / "admin.token"
    token.chmod(0o644)
    try:
        found = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    finally:
        token.chmod(0o600)
    assert found.returncode == 1
    (wrong,) = [one for one in json.loads(found.stdout)["findings"] if one["level"] == "wrong"]
    assert wrong["fix"] == f"chmod 600 {token}"


def test_a_cordoned_node_keeps_its_job_and_gets_no_other(own_server: LiveServer) -> None:
    own_server.round_s = 2.0
    own_server.start()
    client = own_server.client

    def running() -> dict[str, str]:
        return {job["id"]: job["accelerator"] for job in client.get("/v1/jobs", state="running")}

    first = client.submit(["sleep", "60"], workload="big", accelerators=["v100"])["id"]
    until = time.monotonic() + 10
    while running() != {first: "v100"} and time.monotonic() < until:
        time.sleep(0.05)
    assert own_server.cli("nodes", "cordon", "v100-0").stdout == "v100-0: cordoned\n"
    others = [client.submit(["sleep", "60"], workload="big", weight=9)["id"] for _ in range(3)]
    time.sleep(7.0)  # three rounds
    found = client.job(first)
    assert (found["state"], found["leases"]) == ("running", 1)
    assert sorted(running().values()) == ["k80", "v100"]
    own_server.kill()
    own_server.start()
    assert said(own_server, "nodes")[0]["cordoned"]
    client.post(f"/v1/jobs/{first}/cancel")
    time.sleep(3.0)
    assert list(running().values()) == ["k80"]
    assert own_server.cli("nodes", "return", "v100-0").stdout == "v100-0: up\n"
    until = time.monotonic() + 10
    while len(running()) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    assert sorted(running().values()) == ["k80", "v100"]
    for job in others:
        client.post(f"/v1/jobs/{job}/cancel")


# -- settings, signals, logs, limits --------------------------------------------------------------


def test_a_gang_that_no_accelerator_holds_alone_runs_where_gangs_are_mixed(
    own_server: LiveServer,
) -> None:
    own_server.extra = ("--policy", "hadar")
    own_server.start()
    client = own_server.client
    job = client.submit(["true"], workload="big", gang=2)["id"]
    assert client.wait(job, timeout_s=20)["state"] == "finished"


def test_a_cluster_grows_between_restarts_and_its_nodes_are_used(own_server: LiveServer) -> None:
    own_server.devices = "v100=1"
    own_server.start()
    client = own_server.client
    first, second = (client.submit(["sleep", "60"], workload="big")["id"] for _ in range(2))
    until = time.monotonic() + 10
    while client.job(first)["state"] != "running" and time.monotonic() < until:
        time.sleep(0.05)
    own_server.kill()
    own_server.devices = "k80=1,v100=1"  # in whatever order
    own_server.start()

    def used() -> set[str]:
        return {client.job(one)["accelerator"] for one in (first, second)}

    until = time.monotonic() + 15
    while used() != {"v100", "k80"} and time.monotonic() < until:
        time.sleep(0.05)
    assert used() == {"v100", "k80"}
    assert [one["id"] for one in said(own_server, "nodes")] == ["v100-0", "k80-0"]
    assert own_server.cli("nodes", "drain", "k80-0").returncode == 0
    assert own_server.cli("nodes", "remove", "k80-0").returncode == 0
    assert own_server.cli("nodes", "return", "k80-0").returncode != 0
    own_server.kill()
    own_server.start()
    assert [one["id"] for one in said(own_server, "nodes")] == ["v100-0"]
    with pytest.raises(ServerError, match="which the cluster does not have"):
        client.submit(["sleep", "1"], workload="big", accelerators=["k80"])


def test_a_port_that_is_taken_is_one_clear_line(
    server: LiveServer, own_server: LiveServer
) -> None:
    refused = own_server.cli(
        "serve", "--data", own_server.data, "--port", server.port, "--emulate", "v100=1"
    )
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert f"cannot listen on 127.0.0.1:{server.port}" in refused.stderr


def test_completion_scripts_are_to_be_had(server: LiveServer) -> None:
    env = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    found = subprocess.run(
        [sys.executable, "-m", "fairlead", "--show-completion", "bash"],
        capture_output=True, text=True, env=env, check=False,
    )  # fmt: skip
    assert found.returncode == 0
    assert "complete" in found.stdout
    assert server.process is not None
