"""The client commands against a real server."""

import contextlib
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
from tests.e2e.support.live_server import LiveServer, json_output

from fairlead.client import Client, ServerError
from fairlead.files import read_speeds


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
    assert server.client.wait(job, timeout_s=90)["state"] == "finished"
    assert server.cli("logs", job).stdout == f"{sys.executable} --lr 0.1 -v\n"
    nobody = server.cli("logs", job, "--rank", "7")
    assert (nobody.returncode, nobody.stdout) == (1, "")
    assert "no output from rank 7 (its ranks: 0) [missing]" in nobody.stderr


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
    job = server.client.wait(made.stdout.strip(), timeout_s=90)
    assert (job["state"], job["message"]) == ("failed", "it exited with 3")
    assert server.cli("logs", job["id"]).stdout == "mine\n"


def test_options_take_precedence_over_a_job_file(server: LiveServer) -> None:
    path = server.root / "job.yaml"
    path.write_text(
        "name: from-file\ncommand: sleep 0.1\nworkload: small\ngang: 20\nsteps: 7\nweight: 2.5\n"
        "priority: 3\ndeadline_s: 600\naccelerators: [v100]\nenvironment: {A: 1}\nretries: 0\n"
    )
    refused = server.cli("submit", "--file", path)
    assert refused.returncode == 1  # the cluster has two such devices
    assert "gang" in refused.stderr
    made = json_output(server, "submit", "--file", path, "--gang", 1, "--name", "from-flag")
    shown = {key: made[key] for key in ("name", "gang", "total_steps", "weight", "priority")}
    assert shown == {
        "name": "from-flag", "gang": 1, "total_steps": 7, "weight": 2.5, "priority": 3
    }  # fmt: skip
    assert made["command"] == ["sleep", "0.1"]


def test_an_empty_id_is_one_clear_line_and_commands_name_workloads(server: LiveServer) -> None:
    for command in ("job", "logs", "cancel"):
        refused = server.cli(command, "")
        assert refused.returncode == 1
        assert refused.stderr.startswith("fairlead: job id: empty")
    made = json_output(server, "submit", "--", "true", "--layers", "12", "--seed", "3")
    assert made["workload"] == "true --layers 12"  # the table of the emulated devices lacks it
    assert server.client.wait(made["id"], timeout_s=90)["state"] == "finished"


def test_an_error_ends_in_the_code_of_the_server(server: LiveServer) -> None:
    made = json_output(server, "submit", "--workload", "small", "true")["id"]
    server.client.wait(made, timeout_s=90)
    refused = server.cli("logs", made, "--rank", 99_999_999)
    assert refused.returncode == 1
    assert refused.stderr.startswith("fairlead: rank: out of range: expected less than 100000")
    for code, command in (
        ("input", ("submit", "--gang", 99, "true")),
        ("missing", ("job", "j999")),
        ("protocol", ("cancel", made)),
        ("input", ("logs", made, "--rank", 99_999_999)),
    ):
        assert server.cli(*command).stderr.endswith(f" [{code}]\n")
    unknown_token = {**server.environment, "FAIRLEAD_TOKEN": "fl_0_0"}
    listing = [sys.executable, "-m", "fairlead", "jobs"]
    denied = subprocess.run(
        listing, capture_output=True, text=True, env=unknown_token, check=False
    )
    assert denied.stderr.endswith(" [denied]\n")


def test_a_body_that_is_not_json_is_refused(server: LiveServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    token = (server.data / "admin.token").read_text()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("POST", "/v1/jobs", "{command: true}", headers)
    problem = json.loads(connection.getresponse().read())["error"]
    connection.close()
    assert (problem["code"], problem["field"]) == ("input", None)
    assert problem["message"].startswith("request body: not JSON: Expecting property name")
    assert problem["message"].endswith("(at character 1)")


def test_names_cannot_break_the_output_of_commands(server: LiveServer) -> None:
    odd = "[/b] :x:"
    options = ("--name", odd, "--tenant", "a/b", "--workload", "small")
    made = json_output(server, "submit", *options, "true")
    for command in (("jobs", "--all"), ("job", made["id"]), ("shares",), ("tenants",)):
        shown = server.cli(*command)
        assert shown.returncode == 0, shown.stderr
        assert odd in shown.stdout or "a/b" in shown.stdout
    refused = server.cli("submit", "--name", "a\x1b[2J", "--workload", "small", "true")
    assert refused.returncode == 1
    assert "name: " in refused.stderr


def test_tenant_settings_without_an_option_stay(server: LiveServer) -> None:
    def changed(*options: str) -> Any:
        made = server.cli("tenants", "set", "a/b", *options, "--json")
        assert made.returncode == 0, made.stderr
        return json.loads(made.stdout)

    options = "--weight", "2", "--guarantee", "v100=1", "--limit", "k80=2", "--parent", "top"
    assert "no tenant 'top'" in server.cli("tenants", "set", "a/b", *options).stderr
    server.cli("tenants", "set", "top")
    now = changed(*options) | changed("--priority", "3")
    assert (now["weight"], now["priority"], now["parent"]) == (2.0, 3, "top")
    assert (now["guarantee"], now["limit"]) == ({"v100": 1.0}, {"k80": 2.0})
    now = changed("--guarantee", "v100=none", "--parent", "none")
    assert (now["guarantee"], now["limit"], now["parent"]) == ({}, {"k80": 2.0}, None)


def test_a_note_says_that_the_policy_ignores_tenants_weights(server: LiveServer) -> None:
    hint = "max-min ignores tenants' weights; hierarchical and tenant-max-min divide"
    assert server.client.get("/v1/about")["divides_among_tenants"] is False
    assert hint in server.cli("tenants", "set", "heavy", "--weight", 3).stderr
    assert server.cli("tenants", "set", "heavy", "--priority", 0).stderr == ""
    assert hint in server.cli("shares").stdout


def test_tokens_are_listed_with_visible_tenants_and_expiry(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    server.cli("tokens", "make", "old", "--tenant", "x", "--sees", "y", "--lasts", "0.001")
    listed = server.cli("tokens").stdout
    assert re.search(r"old +│ tenant +│ x +│ y +│ all of its role +│ 20\d\d-", listed)
    assert "(expired)" in listed
    assert re.search(r"admin +│ admin +│ +│ +│ all of its role +│ first start +│ never", listed)
    refused = server.cli("tokens", "make", "all", "--role", "viewer", "--tenant", "x")
    assert refused.returncode == 1
    assert "tenant: not allowed for role viewer" in refused.stderr


def test_a_job_is_shown_with_local_times(server: LiveServer) -> None:
    made = server.cli("submit", "--workload", "small", "--", "true").stdout.strip()
    at = server.client.wait(made, timeout_s=90)["submitted_at"]
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
    made = json_output(
        server, "submit", "--workload", "small", "--array", "lr=0.1,0.01", "--array", "seed=0-1",
        "--name", "try-{lr}-{seed}", "--multijob", "search", "--",
        "sh", "-c", "echo {lr} {seed} $FAIRLEAD_ARRAY_INDEX",
    )  # fmt: skip
    assert [job["name"] for job in made] == [
        "try-0.1-0", "try-0.1-1", "try-0.01-0", "try-0.01-1"
    ]  # fmt: skip
    for job in made:
        assert server.client.wait(job["id"], timeout_s=90)["state"] == "finished"
    logs = [server.cli("logs", job["id"]).stdout for job in made]
    assert logs == ["0.1 0 0\n", "0.1 1 1\n", "0.01 0 2\n", "0.01 1 3\n"]
    of_search = json_output(server, "jobs", "--multijob", "search")
    assert [job["id"] for job in of_search] == [job["id"] for job in made]
    assert len(json_output(server, "jobs", "--name", "try-0.1-*")) == 2
    (newest,) = json_output(server, "jobs", "--multijob", "search", "--last", 1)
    assert newest["id"] == made[-1]["id"]


@pytest.mark.parametrize(
    ("listed", "status", "message"),
    [
        ("v100,k80=0", 2, "not allowed: 'k80=0': expected a whole number of devices"),
        ("v100,k80=x", 2, "not allowed: 'k80=x': expected a whole number of devices"),
        ("v100,v100=2", 2, "each accelerator once"),
        ("v100,tpu=2", 1, "tpu=2: the cluster has 0 tpu: expected some of v100, k80"),
        ("v100,k80=9", 1, "k80=9: the cluster has 2 k80"),
        ("k80=9", 1, "k80=9: the cluster has 2 k80"),
    ],
)
def test_impossible_numbers_of_devices_are_refused_with_the_reason(
    server: LiveServer, listed: str, status: int, message: str
) -> None:
    refused = server.cli("submit", "--workload", "big", "--accelerators", listed, "--", "true")
    assert refused.returncode == status
    assert message in refused.stderr
    body = {"command": ["true"], "workload": "big", "accelerators": listed.split(",")}
    answer, _, text = server.client.raw("POST", "/v1/jobs", body)
    assert (answer, json.loads(text)["error"]["field"]) == (422, "accelerators")


def test_a_policy_without_per_accelerator_gangs_refuses_them(own_server: LiveServer) -> None:
    own_server.devices, own_server.extra = "v100=1,k80=2", ("--policy", "gandiva")
    own_server.start()
    refused = own_server.cli(
        "submit", "--workload", "big", "--accelerators", "v100,k80=2", "--", "true"
    )
    assert refused.returncode == 1
    assert "different numbers of devices for different accelerators" in refused.stderr
    assert "choose a policy that supports them" in refused.stderr


# -- watching -----------------------------------------------------------------------------------


def test_events_follow_a_job_from_its_submission_to_its_end(server: LiveServer) -> None:
    seen: list[dict[str, Any]] = []

    def listen() -> None:
        follower = Client(f"http://127.0.0.1:{server.port}", server.client._token)
        with contextlib.suppress(ServerError):  # it is stopped after the last test
            for event in follower.events():
                seen.append(event)  # one by one, as they come

    threading.Thread(target=listen, daemon=True).start()
    earlier = server.client.submit(["sleep", "60"], workload="small")["id"]
    server.until_followed(earlier, seen)
    server.client.post(f"/v1/jobs/{earlier}/cancel")
    job = server.client.submit(["true"], workload="small")["id"]
    server.client.ask("PATCH", f"/v1/jobs/{job}", {"priority": 2})
    names: list[str] = []
    until = time.monotonic() + 90
    while not {"job.changed", "lease.started", "lease.ended"} <= set(names):
        assert time.monotonic() < until, names
        time.sleep(0.05)
        names = [event["event"] for event in seen if event.get("job") == job]
    assert names[0] == "job.submitted"


def test_watch_shows_a_job_submitted_later(server: LiveServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fairlead", "jobs", "--watch", "--name", "seen-by-watch"]
    shown = tmp_path / "shown"

    def soon(text: str) -> bool:
        ends_at = time.monotonic() + 90
        while text not in shown.read_text() and time.monotonic() < ends_at:
            time.sleep(0.1)
        return text in shown.read_text()

    with shown.open("w") as out:
        watching = subprocess.Popen(command, stdout=out, env=server.environment)
    try:
        # Without a terminal, the output must still appear before the command ends.
        assert soon("0 jobs")
        server.client.submit(["true"], workload="small", name="seen-by-watch")
        assert soon("seen-by-watch")
        assert soon("finished")
        watching.send_signal(signal.SIGINT)
        watching.wait(60)
    finally:
        watching.kill()
        watching.wait()
    assert shown.read_text().count("0 jobs") == 1


def test_priority_changes_and_may_be_negative(server: LiveServer) -> None:
    job = server.client.submit(["sleep", "60"], workload="small")["id"]
    assert json_output(server, "priority", job, 7)["priority"] == 7
    assert server.cli("priority", job, -3).stdout == f"{job}: priority -3\n"
    assert server.client.job(job)["priority"] == -3
    server.client.post(f"/v1/jobs/{job}/cancel")


# -- looking into it ------------------------------------------------------------------------------


def test_explain_and_audit_use_the_current_jobs(server: LiveServer) -> None:
    jobs = [server.client.submit(["sleep", "60"], workload="big")["id"] for _ in range(5)]
    explanation = json_output(server, "explain", jobs[0])
    assert (explanation["who"], explanation["policy"], explanation["kind"]) == (
        jobs[0],
        "max-min",
        "job",
    )
    assert explanation["prices"]["v100"] > explanation["prices"]["k80"] > 0
    explained = server.cli("explain", jobs[0])
    assert f"Under max-min, job {jobs[0]} makes" in explained.stdout.replace("\n", " ")
    audit = json_output(server, "audit", "--live", "--lies", 0)
    assert audit["policy"] == "max-min"
    assert audit["pareto_slack"] < 1e-6
    for job in jobs:
        server.client.post(f"/v1/jobs/{job}/cancel")
    ended = server.cli("explain", jobs[0])
    assert ended.returncode == 1
    assert "not being scheduled: it was cancelled" in ended.stderr


def test_completion_scripts_are_available(server: LiveServer) -> None:
    env = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "fairlead", "--show-completion", "bash"],
        capture_output=True, text=True, env=env, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert "complete" in done.stdout
    assert server.process is not None


def test_doctor_passes_a_healthy_server_and_names_a_fault(server: LiveServer) -> None:
    env = {**server.environment, "FAIRLEAD_EMULATE": "v100=1"}
    env["FAIRLEAD_PORT"] = str(server.port)
    command = [sys.executable, "-m", "fairlead", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stdout
    levels = {finding["what"]: finding["level"] for finding in json.loads(done.stdout)["findings"]}
    assert set(levels.values()) == {"ok"}
    assert {"database", "disk", "server", "job library", "devices"} <= set(levels)
    token = server.data / "admin.token"
    token.chmod(0o644)
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    finally:
        token.chmod(0o600)
    assert done.returncode == 1
    (wrong,) = [
        finding for finding in json.loads(done.stdout)["findings"] if finding["level"] == "wrong"
    ]
    assert wrong["fix"] == f"chmod 600 {token}"


def test_a_port_that_is_taken_is_one_clear_line(
    server: LiveServer, own_server: LiveServer
) -> None:
    refused = own_server.cli(
        "serve", "--data", own_server.data, "--port", server.port, "--emulate", "v100=1"
    )
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert f"cannot listen on 127.0.0.1:{server.port}" in refused.stderr


def test_a_profile_measures_the_speed_on_each_accelerator(server: LiveServer) -> None:
    out = server.root / "measured.csv"
    options = ("profile", "--workload", "big", "--steps", 100, "--warmup", 2, "--out", out)
    made = server.cli(*options, "--json", server.root / "train.py", 10**6, "unused")
    assert made.returncode == 0, made.stderr
    speeds = {row["accelerator"]: row["steps_per_s"] for row in json.loads(made.stdout)}
    # The device is emulated at 25 steps/s; a second of lag is made up for.
    assert 5 < speeds["k80"] < 35
    assert len(read_speeds(out).steps_per_s) == len(speeds) == 2
    failed = server.cli(*options, "--accelerators", "k80", "true")
    assert failed.returncode == 1
    assert re.search(r"fairlead: k80: job j\d+ ended before all steps were", failed.stderr)
    refused = server.cli(*options, "--accelerators", "h100", "true").stderr
    assert refused.startswith("fairlead: --accelerators: no node that is up has 'h100'")
